# shellcheck shell=bash disable=SC2034 # its variables are read by node.sh
# The job's node-local folder: mode 0700, locked while its node.sh runs, removed afterwards.
# Sets: LOCAL, LOCAL_TOKEN, SCRATCH_NEW.
# Descriptors: 4 the lock of the job's folder.

readonly SCRATCH_MIN_KIB=65536 # a job of minutes needs about this much
# Limits for copies of Ray's logs.
readonly LOGS_FILE_BYTES=$((1024 * 1024)) LOGS_BYTES=$((64 * 1024 * 1024)) LOGS_TIMEOUT_S=30

# Sets LOCAL, with the files of docs/flow.md in it. It is locked before it gets its name, so that it is never stale.
scratch::create() {
    local -r parent=${VERLJOB_LOCAL:-/tmp}
    local -r new=$parent/.verljob-new.$SLURM_JOB_ID-$SLURM_NODEID-$RANDOM$RANDOM
    scratch::_remove_stale "$parent"
    SCRATCH_NEW=$new # for scratch::remove, if a signal ends the script before the rename
    mkdir -m 700 -- "$new" \
        || fail 77 "cannot make a folder in $parent" "export VERLJOB_LOCAL=a node-local folder that you may write"
    exec 4< "$new"
    flock --nonblock 4
    if ! scratch::_fill "$new"; then
        fail 69 "there is no room for the job in $parent on $HOST" \
            "free space and inodes there, or export VERLJOB_LOCAL=a node-local folder with $SCRATCH_MIN_KIB KiB to spare"
    fi
    LOCAL_TOKEN=${VERLJOB_TOKEN:-}
    unset VERLJOB_TOKEN
    LOCAL=$(scratch::_path "$SLURM_NODEID")
    if ! mv -T -n -- "$new" "$LOCAL" || [[ -e $new ]]; then
        scratch::_refuse_name
    fi
}

# The name is that of another launch of this job, or another account created it.
scratch::_refuse_name() {
    local -r taken=$LOCAL
    LOCAL=''
    [[ ! -O $taken || -L $taken ]] || fail 64 "job $SLURM_JOB_ID already has a launch running on $HOST" "wait for it, or scancel it"
    fail 77 "$taken on $HOST belongs to $(stat -c %U -- "$taken" || printf nobody)" \
        "have its owner or an operator remove it, or export VERLJOB_LOCAL=a node-local folder that only you may write"
}

# usage: scratch::_fill FOLDER
scratch::_fill() {
    local blocks size
    mkdir -m 700 -- "$1/tmp" "$1/out" && mkfifo -m 600 -- "$1/lease" "$1/out/pulse" \
        && (umask 077 && printf '%s' "${VERLJOB_TOKEN:-}" > "$1/token") \
        && read -r blocks size <<< "$(stat --file-system --format='%a %S' -- "$1")" \
        && [[ $blocks =~ ^[0-9]+$ && $size =~ ^[0-9]+$ ]] && ((blocks * size / 1024 >= SCRATCH_MIN_KIB))
}

# usage: scratch::_path NODE-ID
scratch::_path() {
    printf '%s\n' "${VERLJOB_LOCAL:-/tmp}/verljob-$UID-$SLURM_JOB_ID-$VERLJOB_ATTEMPT-$1"
}

# usage: scratch::adopt NODE-ID
# Sets LOCAL to the folder of this job's killed node.sh, once its lock is free, and LOCAL_TOKEN; returns 1 without one.
scratch::adopt() {
    LOCAL=$(scratch::_path "$1") LOCAL_TOKEN=''
    [[ -e $LOCAL || -L $LOCAL ]] || return 1
    if [[ ! -d $LOCAL || -L $LOCAL || ! -O $LOCAL ]]; then
        log::warn "$LOCAL belongs to $(stat -c %U -- "$LOCAL" || printf nobody) or is not a folder: left alone"
        return 1
    fi
    exec 4< "$LOCAL/."
    flock --timeout 10 4 && [[ -d $LOCAL ]] || return 1
    [[ ! -f $LOCAL/token || -L $LOCAL/token ]] || LOCAL_TOKEN=$(< "$LOCAL/token")
}

scratch::remove() {
    local folder
    for folder in "${LOCAL:-}" "${SCRATCH_NEW:-}"; do
        [[ -z $folder ]] || rm -rf --one-file-system -- "$folder" || log::warn "could not remove $folder"
    done
    exec 4<&-
}

# usage: scratch::_remove_stale PARENT
# Removes the unlocked folders of this account's killed launches, each after its container.
scratch::_remove_stale() {
    local folder now made
    printf -v now '%(%s)T' -1
    for folder in "$1/verljob-$UID-"* "$1/.verljob-new."*; do
        [[ -d $folder && ! -L $folder && -O $folder ]] || continue
        made=$(stat -c %Y -- "$folder") || continue # it has just been removed
        [[ $folder != */.* ]] || ((now - made > 60)) || continue # it may not be locked yet
        exec 4< "$folder"
        if flock --nonblock 4; then
            log::note "removing $folder, which a killed launch left"
            [[ $folder == */.* ]] || runtime::remove "${folder##*/}"
            rm -rf --one-file-system -- "$folder"
        fi
        exec 4<&-
    done
}

# usage: scratch::save_ray_logs TARGET
# Copies the end of each of Ray's logs with secrets masked, within a second after TERM.
scratch::save_ray_logs() {
    local file size copied=0 timeout_s=$LOGS_TIMEOUT_S
    local -r began=$SECONDS
    [[ -z $ENDING ]] || timeout_s=1
    for file in "$LOCAL"/tmp/ray/session_[0-9]*/logs/*.{log,err,out}; do
        [[ -s $file && ! -L $file ]] || continue
        if ((copied >= LOGS_BYTES || SECONDS - began > timeout_s)); then
            log::warn "not all of Ray's logs were saved"
            return 0
        fi
        mkdir -p -- "$1"
        scratch::_print_masked "$file" > "$1/${file##*/}"
        size=$(stat -c %s -- "$1/${file##*/}")
        copied=$((copied + size))
    done
}

# usage: scratch::_print_masked FILE
# Masks the text before it is cut, since no pattern matches the second half of a secret.
scratch::_print_masked() {
    if (($(stat -c %s -- "$1") <= LOGS_FILE_BYTES)); then
        tr -d '\000' < "$1" | secrets::mask
    else
        tail -c "$((LOGS_FILE_BYTES + SECRETS_LONGEST))" -- "$1" | tr -d '\000' | secrets::mask | tail -c "+$((SECRETS_LONGEST + 1))"
    fi
}
