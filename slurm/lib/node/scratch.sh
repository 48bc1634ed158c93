# shellcheck shell=bash disable=SC2034 # what it sets is read by node.sh
# The job's node-local folder: 0700, locked while its node.sh lives, gone afterwards.
# Sets: FOLDER_FRESH, LOCAL, LOCAL_TOKEN.
# Descriptors: 4 the lock of the job's folder.

# Ray's logs and sockets, and what verl's workers leave in /tmp, take about this much in a job of minutes.
readonly FOLDER_LEAST_KIB=65536

# Sets LOCAL, with the lease, the token and the folders of docs/flow.md in it. Descriptor 4 holds its lock: it is taken
# before the folder gets its name, so nobody takes a new folder for a stale one.
scratch::make() {
    local -r parent=${VERLJOB_LOCAL:-/tmp}
    local -r fresh=$parent/.verljob-new.$SLURM_JOB_ID-$SLURM_NODEID-$RANDOM$RANDOM
    scratch::_sweep "$parent"
    FOLDER_FRESH=$fresh # until it has its name: for scratch::remove, which a signal may call while it is being made
    mkdir -m 700 -- "$fresh" \
        || fail 77 "cannot make a folder in $parent" "export VERLJOB_LOCAL=a node-local folder that you may write"
    exec 4< "$fresh"
    flock --nonblock 4
    if ! scratch::_fill "$fresh"; then
        fail 69 "there is no room for the job in $parent on $HOST" \
            "free space and inodes there, or export VERLJOB_LOCAL=a node-local folder with $FOLDER_LEAST_KIB KiB to spare"
    fi
    LOCAL_TOKEN=${VERLJOB_TOKEN:-}
    unset VERLJOB_TOKEN
    LOCAL=$(scratch::_name "$SLURM_NODEID")
    if ! mv -T -n -- "$fresh" "$LOCAL" || [[ -e $fresh ]]; then
        scratch::_taken
    fi
}

# The name is the job's, so that one launch of it keeps another from the node, and anybody can make a folder of that name.
scratch::_taken() {
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
        && [[ $blocks =~ ^[0-9]+$ && $size =~ ^[0-9]+$ ]] && ((blocks * size / 1024 >= FOLDER_LEAST_KIB))
}

# usage: scratch::_name NODE-ID
scratch::_name() {
    printf '%s\n' "${VERLJOB_LOCAL:-/tmp}/verljob-$UID-$SLURM_JOB_ID-$VERLJOB_ATTEMPT-$1"
}

# usage: scratch::adopt NODE-ID
# Sets LOCAL to the folder that this job's killed node.sh left, once nobody holds it any more, and LOCAL_TOKEN to the token
# in it; returns 1 without one. Another account may have made one of that name.
scratch::adopt() {
    LOCAL=$(scratch::_name "$1") LOCAL_TOKEN=''
    [[ -e $LOCAL || -L $LOCAL ]] || return 1
    if [[ ! -d $LOCAL || -L $LOCAL || ! -O $LOCAL ]]; then
        log::warn "$LOCAL belongs to $(stat -c %U -- "$LOCAL" || printf nobody) or is no folder: left alone"
        return 1
    fi
    exec 4< "$LOCAL/."
    flock --timeout 10 4 && [[ -d $LOCAL ]] || return 1
    [[ ! -f $LOCAL/token || -L $LOCAL/token ]] || LOCAL_TOKEN=$(< "$LOCAL/token")
}

# Safe to call without a folder, or with one that was being made.
scratch::remove() {
    local folder
    for folder in "${LOCAL:-}" "${FOLDER_FRESH:-}"; do
        [[ -z $folder ]] || rm -rf --one-file-system -- "$folder" || log::warn "could not remove $folder"
    done
    exec 4<&-
}

# usage: scratch::_sweep PARENT
# Removes what our own killed launches left on this node, container first: folders that nobody holds a lock on.
scratch::_sweep() {
    local folder now made
    printf -v now '%(%s)T' -1
    for folder in "$1/verljob-$UID-"* "$1/.verljob-new."*; do
        [[ -d $folder && ! -L $folder && -O $folder ]] || continue
        made=$(stat -c %Y -- "$folder") || continue # it has just gone
        [[ $folder != */.* ]] || ((now - made > 60)) || continue # perhaps not locked yet
        exec 4< "$folder"
        if flock --nonblock 4; then
            log::note "removing $folder, which a killed launch left"
            [[ $folder == */.* ]] || runtime::remove "${folder##*/}"
            rm -rf --one-file-system -- "$folder"
        fi
        exec 4<&-
    done
}
