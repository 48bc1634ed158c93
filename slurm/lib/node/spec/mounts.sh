# shellcheck shell=bash disable=SC2034 # what it sets is read by the runtime
# Mounts of the container, at the same paths as on the host.
# Sets: CONTAINER_MOUNTS, CONTAINER_TMPFS, CONTAINER_WORKDIR, HF_HOME, TRANSFORMERS_CACHE, VERLJOB_DATA,
#   VERLJOB_LEASE, VERLJOB_TOKEN_FILE.

# usage: mounts::collect
# Sets CONTAINER_MOUNTS ("source<TAB>target<TAB>rw|ro"), CONTAINER_TMPFS and CONTAINER_WORKDIR.
mounts::collect() {
    local path
    export HF_HOME=${HF_HOME:-$HOME/.cache/huggingface} VERLJOB_DATA=${VERLJOB_DATA:-$HOME/.cache/verljob}
    export TRANSFORMERS_CACHE=$HF_HOME/hub
    CONTAINER_MOUNTS=() CONTAINER_TMPFS=() CONTAINER_WORKDIR=$SLURM_SUBMIT_DIR
    mounts::_private
    mounts::_or_empty "$HOME" home
    mounts::_or_empty "$SLURM_SUBMIT_DIR" work
    for path in "$VERLJOB_RUN_DIR" "${VERLJOB_CHECKPOINTS:-$VERLJOB_RUN_DIR}" "$VERLJOB_DATA" "$HF_HOME"; do
        [[ -n ${VERLJOB_DRY_RUN:-} || -d $path ]] || mkdir -p -- "$path" || fail 77 "cannot make $path on $HOST" "name a folder that you may write"
        mounts::_add "$path" "$path" rw
    done
    [[ -n ${VERLJOB_DRY_RUN:-} ]] || ownership::require "${VERLJOB_CHECKPOINTS:-$VERLJOB_RUN_DIR}"
    mounts::_of_the_user
    for path in "${VERLJOB_VERL:-}" "${VERLJOB_DATA_SOURCE:-}" "${VERLJOB_MODEL:-}"; do
        # A model or a data source may also be a name of the hub.
        [[ $path != /* ]] || { mounts::_require "$path" && mounts::_add "$path" "$path" ro; }
    done
    mounts::_add "$VERLJOB_HOME" "$VERLJOB_HOME" ro
    [[ $VERLJOB_RECIPE != /* ]] || mounts::_add "${VERLJOB_RECIPE%/*}" "${VERLJOB_RECIPE%/*}" ro
    [[ ! -e $HOME/.ssh ]] || mounts::_hide "$HOME/.ssh" # keys stay on the host
    mounts::_places_in_tmp
}

# usage: mounts::_hide FOLDER
# Puts an empty file system over it under every path by which a mount shows it. A home has several: a link's, that of a bind
# or of its server's export, each below a folder above it. What lies below a mount is compared by device and inode.
mounts::_hide() {
    local mount source target path below
    local -a paths
    local -r hidden=$1
    mapfile -t paths < <(mounts::_paths "$hidden")
    CONTAINER_TMPFS+=("$hidden")
    for mount in "${CONTAINER_MOUNTS[@]}"; do
        IFS=$'\t' read -r source target _ <<< "$mount"
        for path in "${paths[@]}"; do
            below=''
            while [[ $path == /* ]]; do # without a slash it would never get shorter
                below=/${path##*/}$below path=${path%/*}
                [[ ${source%/}$below -ef $hidden && " ${CONTAINER_TMPFS[*]} " != *" ${target%/}$below "* ]] || continue
                CONTAINER_TMPFS+=("${target%/}$below")
            done
        done
    done
}

# usage: mounts::_paths FOLDER
# Prints the paths that it has or may have elsewhere: as it is written, without links, and in the file systems that it lies on.
mounts::_paths() {
    local root point device
    local -r physical=$(realpath -- "$1") home=$(realpath -- "${1%/*}")
    printf '%s\n' "$1" "$home/${1##*/}" "$physical"
    while read -r _ _ _ root point _ device; do
        device=${device#*- } device=${device#* } # behind the optional fields: type, device, options
        [[ $point != / && $physical == "$point"/* ]] || continue
        printf '%s\n' "${root%/}${physical#"$point"}"
        device=${device%% *}
        # Of SERVER:/PATH; the server may be [fd00::1].
        [[ $device != *:/* ]] || printf '/%s\n' "${device#*:/}${physical#"$point"}"
    done < "${MOUNTS_TABLE:-/proc/self/mountinfo}"
}

# usage: mounts::_add SOURCE TARGET rw|ro
mounts::_add() {
    mounts::_covers "$@" || mounts::_append "$@"
}

# usage: mounts::_append SOURCE TARGET rw|ro
# The first of two for one target stays, so nobody's folder takes the place of our own /tmp.
mounts::_append() {
    local mount target
    for mount in ${CONTAINER_MOUNTS[@]+"${CONTAINER_MOUNTS[@]}"}; do
        IFS=$'\t' read -r _ target _ <<< "$mount"
        [[ $2 != "$target" ]] || return 0
    done
    CONTAINER_MOUNTS+=("$1"$'\t'"$2"$'\t'"$3")
}

# usage: mounts::_covers SOURCE TARGET rw|ro
# Whether a folder lies inside one that is already there. Mounting it by itself would ask more of the engine, which as
# root may not look into a home on a root-squashed file system.
mounts::_covers() {
    local mount source target mode
    for mount in ${CONTAINER_MOUNTS[@]+"${CONTAINER_MOUNTS[@]}"}; do
        IFS=$'\t' read -r source target mode <<< "$mount"
        [[ $1 == "$2" && $source == "$target" && $1 == "$source"/* ]] || continue
        [[ $mode != rw && $3 == rw ]] || return 0
    done
    return 1
}

# usage: mounts::_require PATH
mounts::_require() {
    [[ -n ${VERLJOB_DRY_RUN:-} || -e $1 ]] || fail 66 "there is no $1 on $HOST" "name a path that every node has"
}

# usage: mounts::_or_empty PATH NAME
# Where nodes share no file system the folder is an empty one that ends with the job.
mounts::_or_empty() {
    if [[ -d $1 || -n ${VERLJOB_DRY_RUN:-} ]]; then
        mounts::_add "$1" "$1" rw
    else
        log::warn "no $1 on $HOST: an empty one takes its place"
        mkdir -- "$LOCAL/$2"
        mounts::_add "$LOCAL/$2" "$1" rw
    fi
}

# VERLJOB_MOUNTS: path[:path][:ro], separated by commas. These are mounted as asked, so that a read-only one below a
# home is read-only.
mounts::_of_the_user() {
    local item source target mode
    local -a items
    IFS=, read -r -a items <<< "${VERLJOB_MOUNTS:-}"
    for item in ${items[@]+"${items[@]}"}; do
        mode=rw
        [[ $item != *:ro ]] || mode=ro
        item=${item%:ro}
        source=${item%%:*} target=${item#*:}
        [[ $source == /* && $target == /* && $target != *:* ]] \
            || fail 64 "VERLJOB_MOUNTS has '$item'" "write absolute paths: path[:path][:ro], separated by commas"
        mounts::_require "$source"
        mounts::_append "$source" "$target" "$mode"
    done
}

# The node-local folder's parts, named by variables where docs/flow.md names one.
mounts::_private() {
    local name
    export VERLJOB_LEASE=/run/verljob/lease VERLJOB_TOKEN_FILE=/run/verljob/token
    mounts::_add "$LOCAL/tmp" /tmp rw
    for name in lease token secrets out; do mounts::_add "$LOCAL/$name" "/run/verljob/$name" rw; done
    for name in passwd group; do mounts::_add "$LOCAL/$name" "/etc/$name" ro; done
}

# What is mounted below /tmp needs a place in our own, made by us: the engine would make it as root, and it would stay.
mounts::_places_in_tmp() {
    local mount source target mode
    [[ -z ${VERLJOB_DRY_RUN:-} ]] || return 0
    for mount in "${CONTAINER_MOUNTS[@]}"; do
        IFS=$'\t' read -r source target mode <<< "$mount"
        [[ $target == /tmp/* ]] || continue
        if [[ -d $source ]]; then
            mkdir -p -- "$LOCAL$target"
        else
            mkdir -p -- "$LOCAL${target%/*}" && : >> "$LOCAL$target"
        fi
    done
}
