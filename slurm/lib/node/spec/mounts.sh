# shellcheck shell=bash disable=SC2034 # its variables are read by the runtime
# Mounts of the container, at the same paths as on the host.
# Sets: CONTAINER_MODES, CONTAINER_MOUNTS, CONTAINER_SOURCES, CONTAINER_TMPFS, CONTAINER_WORKDIR, HF_HOME,
#   TRANSFORMERS_CACHE, VERLJOB_COMPILE_CACHE, VERLJOB_DATA, VERLJOB_LEASE, VERLJOB_TOKEN_FILE.

declare -gA CONTAINER_SOURCES=() CONTAINER_MODES=() # of a mount point: the path on the host, and rw or ro

# Sets CONTAINER_MOUNTS (mount points, in order), CONTAINER_TMPFS and CONTAINER_WORKDIR.
mounts::collect() {
    local path
    export HF_HOME=${HF_HOME:-$HOME/.cache/huggingface} VERLJOB_DATA=${VERLJOB_DATA:-$HOME/.cache/verljob}
    export TRANSFORMERS_CACHE=$HF_HOME/hub
    CONTAINER_MOUNTS=() CONTAINER_SOURCES=() CONTAINER_MODES=() CONTAINER_TMPFS=() CONTAINER_WORKDIR=$SLURM_SUBMIT_DIR
    mounts::_add_private
    mounts::_add_or_empty "$HOME" home
    mounts::_add_or_empty "$SLURM_SUBMIT_DIR" work
    for path in "$VERLJOB_RUN_DIR" "${VERLJOB_CHECKPOINTS:-$VERLJOB_RUN_DIR}" "$VERLJOB_DATA" "$HF_HOME"; do
        [[ -n ${VERLJOB_DRY_RUN:-} || -d $path ]] || mkdir -p -- "$path" || fail 77 "cannot make $path on $HOST" "name a folder that you may write"
        mounts::_add "$path" "$path" rw
    done
    [[ -n ${VERLJOB_DRY_RUN:-} ]] || ownership::require "${VERLJOB_CHECKPOINTS:-$VERLJOB_RUN_DIR}"
    mounts::_add_requested
    for path in "${VERLJOB_VERL:-}" "${VERLJOB_DATA_SOURCE:-}" "${VERLJOB_MODEL:-}"; do
        # A model or a data source may also be a name of the hub.
        [[ $path != /* ]] || { mounts::_require "$path" && mounts::_add "$path" "$path" ro; }
    done
    mounts::_add "$VERLJOB_HOME" "$VERLJOB_HOME" ro
    [[ $VERLJOB_RECIPE != /* ]] || mounts::_add "${VERLJOB_RECIPE%/*}" "${VERLJOB_RECIPE%/*}" ro
    [[ ! -e $HOME/.ssh ]] || mounts::_hide "$HOME/.ssh" # keys stay on the host
    mounts::_make_mount_points
}

# usage: mounts::_hide FOLDER
# Covers it with an empty file system at every path at which a mount shows it: of a link, a bind mount or its file server,
# each possibly below a mounted folder. Compares by device and inode.
mounts::_hide() {
    local target path below
    local -a paths
    local -r hidden=$1
    mapfile -t paths < <(mounts::_print_paths "$hidden")
    CONTAINER_TMPFS+=("$hidden")
    for target in "${CONTAINER_MOUNTS[@]}"; do
        for path in "${paths[@]}"; do
            below=''
            while [[ $path == /* ]]; do # without a slash it would not get shorter
                below=/${path##*/}$below path=${path%/*}
                [[ ${CONTAINER_SOURCES[$target]%/}$below -ef $hidden && " ${CONTAINER_TMPFS[*]} " != *" ${target%/}$below "* ]] || continue
                CONTAINER_TMPFS+=("${target%/}$below")
            done
        done
    done
}

# usage: mounts::_print_paths FOLDER
# Prints all its possible paths: as written, without links, and in the file systems that contain it.
mounts::_print_paths() {
    local root point device
    local -r physical=$(realpath -- "$1") home=$(realpath -- "${1%/*}")
    printf '%s\n' "$1" "$home/${1##*/}" "$physical"
    while read -r _ _ _ root point _ device; do
        device=${device#*- } device=${device#* } # after the optional fields: type, device, options
        [[ $point != / && $physical == "$point"/* ]] || continue
        printf '%s\n' "${root%/}${physical#"$point"}"
        device=${device%% *}
        # SERVER:/PATH, where the server may be [fd00::1].
        [[ $device != *:/* ]] || printf '/%s\n' "${device#*:/}${physical#"$point"}"
    done < "${MOUNTS_TABLE:-/proc/self/mountinfo}"
}

# usage: mounts::_add SOURCE TARGET rw|ro
mounts::_add() {
    mounts::_is_covered "$@" || mounts::_append "$@"
}

# usage: mounts::_append SOURCE TARGET rw|ro
# Ignores a second mount of a target, so that no user's folder replaces the private /tmp.
mounts::_append() {
    [[ -z ${CONTAINER_SOURCES[$2]:-} ]] || return 0
    CONTAINER_MOUNTS+=("$2")
    CONTAINER_SOURCES[$2]=$1 CONTAINER_MODES[$2]=$3
}

# usage: mounts::_is_covered SOURCE TARGET rw|ro
# Tests whether the folder is inside a mounted one. To mount it too could fail: the engine, as root, may not enter a home on
# a root-squashed file system.
mounts::_is_covered() {
    local target
    for target in ${CONTAINER_MOUNTS[@]+"${CONTAINER_MOUNTS[@]}"}; do
        [[ $1 == "$2" && ${CONTAINER_SOURCES[$target]} == "$target" && $1 == "$target"/* ]] || continue
        [[ ${CONTAINER_MODES[$target]} != rw && $3 == rw ]] || return 0
    done
    return 1
}

# usage: mounts::_require PATH
mounts::_require() {
    [[ -n ${VERLJOB_DRY_RUN:-} || -e $1 ]] || fail 66 "$1 does not exist on $HOST" "name a path that every node has"
}

# usage: mounts::_add_or_empty PATH NAME
# If the node has no such folder, mounts an empty one that is removed with the job.
mounts::_add_or_empty() {
    if [[ -d $1 || -n ${VERLJOB_DRY_RUN:-} ]]; then
        mounts::_add "$1" "$1" rw
    else
        log::warn "no $1 on $HOST: mounting an empty folder instead"
        mkdir -- "$LOCAL/$2"
        mounts::_add "$LOCAL/$2" "$1" rw
    fi
}

# Adds VERLJOB_MOUNTS, path[:path][:ro] separated by commas, also if covered: a read-only one below a home is read-only.
mounts::_add_requested() {
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

# Adds the parts of the node-local folder, and exports the variables that docs/flow.md lists for them.
mounts::_add_private() {
    local name
    export VERLJOB_LEASE=/run/verljob/lease VERLJOB_TOKEN_FILE=/run/verljob/token
    mounts::_add "$LOCAL/tmp" /tmp rw
    for name in lease token secrets out; do mounts::_add "$LOCAL/$name" "/run/verljob/$name" rw; done
    for name in passwd group; do mounts::_add "$LOCAL/$name" "/etc/$name" ro; done
    unset VERLJOB_COMPILE_CACHE
    [[ -z $COMPILE_CACHE ]] || { export VERLJOB_COMPILE_CACHE=/run/verljob/cache && mounts::_add "$COMPILE_CACHE" /run/verljob/cache rw; }
}

# Creates the mount points below /tmp, which the engine would create as root, so that they would remain.
mounts::_make_mount_points() {
    local target
    [[ -z ${VERLJOB_DRY_RUN:-} ]] || return 0
    for target in "${CONTAINER_MOUNTS[@]}"; do
        [[ $target == /tmp/* ]] || continue
        if [[ -d ${CONTAINER_SOURCES[$target]} ]]; then
            mkdir -p -- "$LOCAL$target"
        else
            mkdir -p -- "$LOCAL${target%/*}" && : >> "$LOCAL$target"
        fi
    done
}
