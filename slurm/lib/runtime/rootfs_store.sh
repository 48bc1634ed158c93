# shellcheck shell=bash disable=SC2034 # its variables are read by the runtimes
# Unpacked images in a folder of the node, for runtimes that start no file. Each is made once, and gets its name when it is
# whole. Jobs that use it hold a shared lock; of those that no job uses, the ones used last are kept.
# Sets: ROOTFS_NAME, ROOTFS_STORE, RUNTIME_ERROR.
# Descriptors: 5 the lock of the image in use.

readonly ROOTFS_STORE_KEEPS=3

# usage: rootfs_store::open FOLDER
# Sets ROOTFS_STORE. Ends with 77 if the folder cannot be made, or if another account can write it.
rootfs_store::open() {
    local VERLJOB_SHARED_FOLDERS='' # a group's members could change the code of this job
    [[ -d $1 || -L $1 ]] || (umask 077 && mkdir -p -- "$1") || fail 77 "cannot make $1 on $HOST" \
        "export VERLJOB_LOCAL=a node-local folder that you may write, with room for the unpacked image"
    ownership::require "$1/."
    ROOTFS_STORE=$1
}

# usage: rootfs_store::use NAME
# Waits while another job makes it; sets ROOTFS_NAME, or returns 1 if there is none.
rootfs_store::use() {
    local -r lock=$ROOTFS_STORE/$1.lock
    ROOTFS_NAME=''
    { exec 5>> "$lock"; } 2> /dev/null || { RUNTIME_ERROR="cannot write $lock"; return 1; }
    process::run flock --shared --timeout "$RUNTIME_PULL_TIMEOUT_S" 5 || { RUNTIME_ERROR="another job still makes $ROOTFS_STORE/$1"; return 1; }
    [[ -d $ROOTFS_STORE/$1 ]] || { RUNTIME_ERROR="there is no $ROOTFS_STORE/$1"; return 1; }
    touch -- "$lock"
    ROOTFS_NAME=$1
}

# usage: rootfs_store::make NAME COMMAND…
# Makes it by COMMAND with the name of a new folder, unless it is there.
rootfs_store::make() {
    local -r until=$((SECONDS + RUNTIME_PULL_TIMEOUT_S))
    until rootfs_store::use "$1"; do
        [[ -z $ENDING ]] && ((SECONDS < until)) && [[ -w $ROOTFS_STORE/$1.lock ]] || return 1
        ! flock --exclusive --nonblock 5 || { rootfs_store::_make "$@"; return; }
        sleep 0.1 # another job makes it
    done
}

# usage: rootfs_store::_make NAME COMMAND…
rootfs_store::_make() {
    local code=0
    touch -- "$ROOTFS_STORE/$1.lock"
    rootfs_store::_prune
    rootfs_store::_remove "$1.new" # of a killed launch
    "${@:2}" "$1.new" || code=$?
    ((code)) || mv -T -- "$ROOTFS_STORE/$1.new" "$ROOTFS_STORE/$1" || code=$?
    if ((code)); then
        rootfs_store::_remove "$1.new"
        exec 5>&-
        return "$code"
    fi
    [[ $1 == *.once-* ]] || flock --shared 5
    ROOTFS_NAME=$1
}

# Removes what killed launches left, and of the images that no job uses those used longest ago.
rootfs_store::_prune() {
    local lock name kept=1 # the one that is made next
    local -a locks
    mapfile -t locks < <(ls -t -- "$ROOTFS_STORE"/*.lock) # names of digests; the last used first
    for lock in "${locks[@]}"; do
        name=${lock##*/} name=${name%.lock}
        if [[ $name == *.once-* ]]; then
            (rootfs_store::_remove_unused "$name" && rm -f -- "$lock")
        elif [[ -d $ROOTFS_STORE/$name ]]; then
            kept=$((kept + 1))
            ((kept <= ROOTFS_STORE_KEEPS)) || (rootfs_store::_remove_unused "$name")
        elif [[ -d $ROOTFS_STORE/$name.new ]]; then
            (rootfs_store::_remove_unused "$name.new" "$name")
        fi
    done
}

# usage: rootfs_store::_remove_unused NAME [NAME-OF-LOCK]
# Runs in a subshell, which opens the lock of another image.
rootfs_store::_remove_unused() {
    exec 5>> "$ROOTFS_STORE/${2:-$1}.lock"
    ! flock --exclusive --nonblock 5 || rootfs_store::_remove "$1"
}

# usage: rootfs_store::_remove NAME
# Takes the name away first: what is removed in part is never used.
rootfs_store::_remove() {
    local folder=$ROOTFS_STORE/$1
    [[ -d $folder ]] || return 0
    if [[ $1 != *.new ]]; then
        log::note "removing $folder, which no job uses"
        rootfs_store::_remove "$1.new"
        mv -T -- "$folder" "$folder.new"
        folder+=.new
    fi
    local -r limit_s=$((${#ENDING} ? 2 : RUNTIME_PULL_TIMEOUT_S)) # after TERM the whole node has 5 s
    timeout "$limit_s" rm -rf --one-file-system -- "$folder" 2> /dev/null \
        || { chmod -R u+rwX -- "$folder" && timeout "$limit_s" rm -rf --one-file-system -- "$folder"; } 2> /dev/null \
        || log::warn "could not remove $folder: the next launch tries again"
}

# Removes the image of this job alone (its name has `.once-`), if it has one.
rootfs_store::close() {
    [[ ${ROOTFS_NAME:-} == *.once-* ]] || return 0
    rootfs_store::_remove "$ROOTFS_NAME"
    rm -f -- "$ROOTFS_STORE/$ROOTFS_NAME.lock"
    exec 5>&-
}
