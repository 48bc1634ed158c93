# shellcheck shell=bash disable=SC2034 # what it sets is read by node.sh
# The job's node-local folder: 0700, locked while its node.sh lives, gone afterwards.

# Ray's logs and sockets, and what verl's workers leave in /tmp, take about this much in a job of minutes.
readonly FOLDER_LEAST_KIB=65536

# Sets LOCAL, with the lease, the token and the folders of docs/flow.md in it. Descriptor 4 holds its lock: it is taken
# before the folder gets its name, so nobody takes a new folder for a stale one.
folder::make() {
    local -r parent=${VERLJOB_LOCAL:-/tmp}
    local -r fresh=$parent/.verljob-new.$SLURM_JOB_ID-$SLURM_NODEID-$RANDOM$RANDOM
    folder::_sweep "$parent"
    FOLDER_FRESH=$fresh # until it has its name: for folder::remove, which a signal may call while it is being made
    mkdir -m 700 -- "$fresh" \
        || fail 77 "cannot make a folder in $parent" "export VERLJOB_LOCAL=a node-local folder that you may write"
    exec 4< "$fresh"
    flock --nonblock 4
    if ! folder::_fill "$fresh"; then
        fail 69 "there is no room for the job in $parent on $HOST" \
            "free space and inodes there, or export VERLJOB_LOCAL=a node-local folder with $FOLDER_LEAST_KIB KiB to spare"
    fi
    LOCAL_TOKEN=${VERLJOB_TOKEN:-}
    unset VERLJOB_TOKEN
    LOCAL=$(folder::_name "$SLURM_NODEID")
    if ! mv -T -n -- "$fresh" "$LOCAL" || [[ -e $fresh ]]; then
        LOCAL=''
        fail 64 "job $SLURM_JOB_ID already has a launch running on $HOST" "wait for it, or scancel it"
    fi
}

# usage: folder::_fill FOLDER
folder::_fill() {
    mkdir -m 700 -- "$1/tmp" "$1/out" && mkfifo -m 600 -- "$1/lease" "$1/out/pulse" \
        && (umask 077 && printf '%s' "${VERLJOB_TOKEN:-}" > "$1/token") \
        && (($(stat --file-system --format='%a * %S / 1024' -- "$1") >= FOLDER_LEAST_KIB))
}

# usage: folder::_name NODE-ID
folder::_name() {
    printf '%s\n' "${VERLJOB_LOCAL:-/tmp}/verljob-$UID-$SLURM_JOB_ID-$VERLJOB_ATTEMPT-$1"
}

# usage: folder::adopt NODE-ID
# Sets LOCAL to the folder that this job's killed node.sh left, once nobody holds it any more; returns 1 without one.
folder::adopt() {
    LOCAL=$(folder::_name "$1")
    [[ -d $LOCAL ]] || return 1
    exec 4< "$LOCAL"
    flock --timeout 10 4 && [[ -d $LOCAL ]]
}

# Safe to call without a folder, or with one that was being made.
folder::remove() {
    local folder
    for folder in "${LOCAL:-}" "${FOLDER_FRESH:-}"; do
        [[ -z $folder ]] || rm -rf --one-file-system -- "$folder" || say::warn "could not remove $folder"
    done
    exec 4<&-
}

# usage: folder::_sweep PARENT
# Removes what our own killed launches left on this node, container first: folders that nobody holds a lock on.
folder::_sweep() {
    local folder now
    printf -v now '%(%s)T' -1
    for folder in "$1/verljob-$UID-"* "$1/.verljob-new."*; do
        [[ -d $folder && ! -L $folder && -O $folder ]] || continue
        [[ $folder != */.* ]] || ((now - $(stat -c %Y -- "$folder") > 60)) || continue # perhaps not locked yet
        exec 4< "$folder"
        if flock --nonblock 4; then
            say::note "removing $folder, which a killed launch left"
            [[ $folder == */.* ]] || runtime::remove "${folder##*/}"
            rm -rf --one-file-system -- "$folder"
        fi
        exec 4<&-
    done
}
