# shellcheck shell=bash disable=SC2034,SC2153 # its variables are read by its callers; HOST is node.sh's
# Compiled code that is kept on the node between jobs, in one folder for each image: bytecode, and what torch.compile, Triton
# and vLLM compile (verl_node/node/compile_cache.py). One job writes a folder; jobs that run meanwhile have copies.
# Sets: COMPILE_CACHE, COMPILE_CACHE_MIB.
# Descriptors: 6 the lock of the image's folder.

readonly COMPILE_CACHE_MAX_IMAGES=4 COMPILE_CACHE_MAX_MIB=4096

# Sets COMPILE_CACHE to this job's folder of compiled code, empty if none is kept.
compile_cache::open() {
    local kept
    local -r parent=${VERLJOB_COMPILE_CACHE:-${VERLJOB_LOCAL:-/tmp}/verljob-cache-$UID}
    COMPILE_CACHE='' COMPILE_CACHE_MIB=0
    [[ $parent != 0 ]] || return 0
    [[ $parent == /* ]] || fail 64 "VERLJOB_COMPILE_CACHE is '$parent'" "set it to the absolute path of a folder on the node's disk, or to 0"
    [[ $IMAGE_ID =~ ([0-9a-f]{16})[0-9a-f]*$ ]] || return 0
    kept=$parent/${BASH_REMATCH[1]}
    compile_cache::_make "$parent" "$kept" || return 0
    compile_cache::_prune "$parent" "$kept"
    [[ -d $kept ]] || mkdir -m 700 -- "$kept"
    if compile_cache::_lock "$kept"; then
        COMPILE_CACHE=$kept
        log::note "compiled code of earlier jobs: $COMPILE_CACHE_MIB MiB in $kept"
    else
        compile_cache::_copy "$kept"
    fi
}

# usage: compile_cache::_copy FOLDER
# A copy that is not complete could have half a file in it, and is not used.
compile_cache::_copy() {
    COMPILE_CACHE=$LOCAL/cache
    if timeout 30 cp -a --reflink=auto -- "$1" "$COMPILE_CACHE" 2> /dev/null; then
        log::note "another job writes compiled code to $1: this one has a copy of $COMPILE_CACHE_MIB MiB"
    else
        rm -rf --one-file-system -- "$COMPILE_CACHE"
        mkdir -m 700 -- "$COMPILE_CACHE"
        log::note "another job writes compiled code to $1: this one compiles everything itself"
    fi
}

# usage: compile_cache::_make PARENT FOLDER
# Makes the folders, and returns 1 if another account could have put code into them.
compile_cache::_make() {
    local owner mode
    [[ -e $1 || -L $1 ]] || (umask 077 && mkdir -p -- "$1") || { log::warn "cannot make $1: compiled code is not kept"; return 1; }
    read -r owner mode <<< "$(stat --format='%u %A' -- "$1")"
    if [[ $owner != "$UID" || $mode != d* || ${mode:5:1}${mode:8:1} != -- ]]; then
        log::warn "$1 on $HOST is no folder that only this account may write ($mode, uid $owner): compiled code is not kept"
        return 1
    fi
    [[ -d $2 ]] || mkdir -m 700 -- "$2" || { log::warn "cannot make $2: compiled code is not kept"; return 1; }
    touch -- "$2" # used now, for _prune
}

# usage: compile_cache::_prune PARENT FOLDER
# Removes the folders that were used longest ago, except those in use, and sets COMPILE_CACHE_MIB to the size of FOLDER.
compile_cache::_prune() {
    local kib folder count=0 total=0
    while IFS=$'\t' read -r kib _ folder; do
        [[ $kib =~ ^[0-9]+$ && $folder == "$1/"* && ${folder##*/} =~ ^[0-9a-f]{16}$ ]] || continue
        count=$((count + 1)) total=$((total + kib / 1024))
        if ((count > COMPILE_CACHE_MAX_IMAGES || total > COMPILE_CACHE_MAX_MIB)) && compile_cache::_lock "$folder"; then
            log::note "removing $folder, $((kib / 1024)) MiB of compiled code"
            rm -rf --one-file-system -- "$folder"
            exec 6<&-
        elif [[ $folder == "$2" ]]; then
            COMPILE_CACHE_MIB=$((kib / 1024))
        fi
    done < <(timeout 10 du --summarize --block-size=1K --time --time-style=+%s -- "$1"/* 2> /dev/null | sort -t $'\t' -k 2,2nr)
}

# usage: compile_cache::_lock FOLDER
# Returns 1 if a job uses it, or if it has just been removed.
compile_cache::_lock() {
    { exec 6< "$1/."; } 2> /dev/null || return 1
    if flock --nonblock 6 && [[ -d $1 ]]; then return 0; fi
    exec 6<&-
    return 1
}

# Ends the use of the folder, after the container.
compile_cache::close() {
    local kib
    [[ -n ${COMPILE_CACHE:-} && $COMPILE_CACHE != "$LOCAL"/* ]] || return 0
    if [[ -z $ENDING ]]; then
        read -r kib _ < <(timeout 5 du --summarize --block-size=1K -- "$COMPILE_CACHE") || kib=''
        [[ ! $kib =~ ^[0-9]+$ ]] || log::note "compiled code is kept in $COMPILE_CACHE for later jobs: $((kib / 1024)) MiB"
    fi
    exec 6<&-
}
