# shellcheck shell=bash disable=SC2034 # its variables are read by node.sh
# No container, for sites without a runtime: VERLJOB_IMAGE is the folder of a Python environment, in which the checkout's
# entrypoints/ runs, inside the step. Only Slurm's limits apply.
# Sets: BARE_PACKAGES, IMAGE_ID, ORPHANS, ORPHANS_PARENT, RUNTIME_ARGV, RUNTIME_ERROR.

# Ray's sockets leave this much of the 107 bytes of a path (verl_node/ray_node/flags.py).
readonly BARE_MAX_TMP_BYTES=43

runtime::available() { :; } # runtime::load checks the environment

runtime::image_help() {
    printf 'make an environment as docs/runtimes.md says and export VERLJOB_IMAGE=its folder, by a path that every node sees\n'
}

runtime::find() {
    RUNTIME_ERROR="with VERLJOB_RUNTIME=bare it has to be the folder of a Python environment"
    return 1
}

# usage: runtime::load FOLDER
# Sets IMAGE_ID to a digest of the installed packages, by which the head compares the nodes.
runtime::load() {
    local site
    local -a packages
    [[ -x $1/bin/python3 ]] || { RUNTIME_ERROR="it has no bin/python3"; return 1; }
    site=$(timeout --kill-after=2 60 "$1/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>&1) \
        || { RUNTIME_ERROR="its python3 does not run: ${site##*$'\n'}"; return 1; }
    packages=("$site"/*.dist-info)
    BARE_PACKAGES=" ${packages[*]##*/} "
    IMAGE_ID=$(printf '%s\n' "${site##*/lib}" "${packages[@]##*/}" | sha256sum)
    IMAGE_ID=sha256:${IMAGE_ID%% *}
}

runtime::is_toolkit_image() {
    RUNTIME_ERROR='Ray is not installed in it'
    [[ $BARE_PACKAGES == *' ray-'* ]]
}

# Refuses mounts at another path, except those of the toolkit, whose paths are passed by variables.
bare::_require_own_paths() {
    local source target
    for target in "${CONTAINER_MOUNTS[@]}"; do
        source=${CONTAINER_SOURCES[$target]}
        case $target in
            "$source" | /tmp | /run/verljob/* | /etc/passwd | /etc/group | "$HOME" | "$CONTAINER_WORKDIR") ;;
            *) fail 64 "the runtime bare cannot show $source as $target" "use it by its own path, or a container's runtime" ;;
        esac
    done
}

# usage: bare::_make_argv COMMAND…
# Sets RUNTIME_ARGV to COMMAND in the environment, with the step's variables except CONTAINER_UNSET.
bare::_make_argv() {
    local name
    local -r folder=${CONTAINER_SOURCES[/run/verljob/lease]%/*}
    RUNTIME_ARGV=(env)
    for name in ${CONTAINER_UNSET[@]+"${CONTAINER_UNSET[@]}"} PYTHONHOME VIRTUAL_ENV; do RUNTIME_ARGV+=(-u "$name"); done
    for name in "${CONTAINER_ENV[@]}"; do
        [[ ${!name-} != /run/verljob/* ]] || RUNTIME_ARGV+=("$name=${CONTAINER_SOURCES[${!name}]:-${!name}}")
    done
    RUNTIME_ARGV+=("HOME=${CONTAINER_SOURCES[$HOME]:-$HOME}" "PATH=$VERLJOB_IMAGE/bin:$PATH" "PYTHONPATH=$VERLJOB_HOME/entrypoints"
        "VERLJOB_SECRETS=$folder/secrets" "VERLJOB_OUT=$folder/out" "TMPDIR=$folder/tmp" "VERLJOB_RAY_TEMP_DIR=$folder/tmp" "$@")
}

runtime::start_argv() {
    local -r work=${CONTAINER_SOURCES[$CONTAINER_WORKDIR]:-$CONTAINER_WORKDIR} tmp=${CONTAINER_SOURCES[/tmp]}
    bare::_require_own_paths
    # shellcheck disable=SC2016 # expands in the inner shell
    bare::_make_argv bash -c 'cd -- "$0" && exec "$@"' "$work" "$VERLJOB_HOME/entrypoints/entrypoint.sh" node
    [[ -z ${VERLJOB_DRY_RUN:-} ]] || return 0
    ((${#tmp} <= BARE_MAX_TMP_BYTES)) || fail 64 "Ray's sockets in $tmp would have too long paths" \
        "export VERLJOB_LOCAL=a shorter path: the job's folder may have $((BARE_MAX_TMP_BYTES - 4)) bytes"
    ln -s . "$tmp/ray" # scratch::save_ray_logs reads tmp/ray; Ray itself writes to tmp, for shorter paths
}

runtime::exec_argv() { bare::_make_argv "${@:2}"; }

runtime::unlimited() { printf 'devices cpus memory pids shm ulimits files\n'; }

# usage: runtime::remove NAME
# NAME is also the name of the job's node-local folder.
runtime::remove() {
    local code=0
    bare::_kill_orphans "${VERLJOB_LOCAL:-/tmp}/$1" || code=$?
    bare::_remove_shared_memory "${VERLJOB_LOCAL:-/tmp}/$1"
    return "$code"
}

# usage: bare::_remove_shared_memory FOLDER
# Removes from /dev/shm, which belongs to the node, this account's files that were written since the job's node-local FOLDER
# was made and that no process uses: CUDA, torch and vLLM leave some when they are ended. While another job of the account has
# a folder there, a file may be one that it passes on, and is left alone. Another account can fill /dev/shm with names, so the
# search is bounded.
bare::_remove_shared_memory() {
    local path line
    local -r began=$SECONDS
    local -a files=()
    local -A used=()
    [[ -f $1/token ]] || return 0 # every file would be newer than a missing one
    for path in /dev/shm/*; do
        ((SECONDS - began < 3)) || break
        [[ ! -f $path || -L $path || ! -O $path || ! $path -nt $1/token ]] || files+=("$path")
    done
    ((${#files[@]})) || return 0
    for path in "${1%/*}/verljob-$UID-"*; do [[ ! -d $path || $path == "$1" ]] || return 0; done
    while IFS= read -r line; do
        [[ $line != */dev/shm/* ]] || used[/dev/shm/${line##*/dev/shm/}]=1
    done < <(cat /proc/[0-9]*/maps 2> /dev/null | sort -u -k 6; readlink -- /proc/[0-9]*/fd/* 2> /dev/null)
    for path in "${files[@]}"; do [[ -n ${used[$path]:-} ]] || rm -f -- "$path"; done
}

# usage: bare::_find_orphans FOLDER
# Sets ORPHANS to this account's processes that belong to the job's node-local FOLDER: by the lease in their environment, an
# open file in its tmp, or their parent. A process can remove each of these marks: Ray's overwrite their environment with
# their titles, but keep their logs open.
bare::_find_orphans() {
    local folder pid grew=1
    local -A parents=() ours=()
    for folder in /proc/[0-9]*; do
        pid=${folder##*/}
        if [[ ! -O $folder || $pid == "$$" ]] || ! bare::_read_parent "$folder"; then continue; fi
        parents[$pid]=$ORPHANS_PARENT
        ! bare::_belongs "$folder" "$1" || ours[$pid]=1
    done
    while ((grew)); do
        grew=0
        for pid in "${!parents[@]}"; do
            [[ -z ${ours[$pid]:-} && -n ${ours[${parents[$pid]}]:-} ]] || continue
            ours[$pid]=1 grew=1
        done
    done
    ORPHANS=(${ours[@]+"${!ours[@]}"})
}

# usage: bare::_read_parent PROC-FOLDER
# Sets ORPHANS_PARENT; returns 1 if the process has ended.
bare::_read_parent() {
    local stat
    { read -r stat < "$1/stat"; } 2> /dev/null || return 1
    # shellcheck disable=SC2086 # the fields after the name, which may contain blanks and brackets
    set -- ${stat##*) }
    ORPHANS_PARENT=$2
    [[ $1 != Z ]]
}

# usage: bare::_belongs PROC-FOLDER FOLDER
# A process of another account, or one that has ended meanwhile, is unreadable and does not belong.
bare::_belongs() {
    local item
    while IFS= read -r -d '' item; do
        [[ $item != "VERLJOB_LEASE=$2/lease" ]] || return 0
    done 2> /dev/null < "$1/environ"
    while IFS= read -r item; do
        [[ $item != "$2/tmp/"* ]] || return 0
    done < <(readlink -- "$1"/fd/* 2> /dev/null)
    return 1
}

# usage: bare::_kill_orphans FOLDER
# Stops the processes until a search finds no more, since a child forked meanwhile is found only by its parent; then kills
# them, until two searches in a row find none: a process in the middle of an exec shows no environment.
bare::_kill_orphans() {
    local deadline stopped=0 found_none=0
    bare::_find_orphans "$1"
    while ((${#ORPHANS[@]} > stopped)); do
        stopped=${#ORPHANS[@]}
        kill -STOP "${ORPHANS[@]}" 2> /dev/null || : # some may have just ended
        bare::_find_orphans "$1"
    done
    deadline=$((SECONDS + 5)) # not of the searches before it, or stopped processes would be left on a slow node
    while ((found_none < 2)); do
        found_none=$((found_none + 1))
        if ((${#ORPHANS[@]})); then
            if ((SECONDS >= deadline)); then
                RUNTIME_ERROR="processes ${ORPHANS[*]} do not end"
                return 1
            fi
            kill -KILL "${ORPHANS[@]}" 2> /dev/null || : # some may have just ended
            found_none=0
        fi
        sleep 0.1
        bare::_find_orphans "$1"
    done
}
