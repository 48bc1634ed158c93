# shellcheck shell=bash disable=SC2034 # what it sets is read by node.sh
# No container, for sites without them: VERLJOB_IMAGE is the folder of a Python environment, on every node or shared by
# all, and the checkout's entrypoints/ runs in it, inside the step. Slurm's limits hold, and there are no others.
# Sets: BARE_PACKAGES, BARE_PLACE, IMAGE_ID, ORPHANS, ORPHANS_PARENT, RUNTIME_ARGV, RUNTIME_SAID.

# What Ray's sockets leave of the 107 bytes of a path (verl_node/ray_node/flags.py).
readonly BARE_TEMPORARY_BYTES=43

runtime::available() { :; } # the environment is looked at by load

runtime::ways() {
    printf 'make an environment as docs/runtimes.md says and export VERLJOB_IMAGE=its folder, by a path that every node sees\n'
}

runtime::find() {
    RUNTIME_SAID="with VERLJOB_RUNTIME=bare it names the folder of a Python environment"
    return 1
}

# usage: runtime::load FOLDER
# IMAGE_ID is a digest of what is installed, so that nodes with different environments are told apart.
runtime::load() {
    local site
    local -a packages
    [[ -x $1/bin/python3 ]] || { RUNTIME_SAID="it has no bin/python3"; return 1; }
    site=$(timeout --kill-after=2 60 "$1/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>&1) \
        || { RUNTIME_SAID="its python3 does not run: ${site##*$'\n'}"; return 1; }
    packages=("$site"/*.dist-info)
    BARE_PACKAGES=" ${packages[*]##*/} "
    IMAGE_ID=$(printf '%s\n' "${site##*/lib}" "${packages[@]##*/}" | sha256sum)
    IMAGE_ID=sha256:${IMAGE_ID%% *}
}

runtime::is_ours() {
    RUNTIME_SAID='Ray is not installed in it'
    [[ $BARE_PACKAGES == *' ray-'* ]]
}

# usage: bare::_place TARGET
# Sets BARE_PLACE: where on the node lies what a container would see as TARGET.
bare::_place() {
    local mount source target
    for mount in "${CONTAINER_MOUNTS[@]}"; do
        IFS=$'\t' read -r source target _ <<< "$mount"
        [[ $target != "$1" ]] || { BARE_PLACE=$source && return; }
    done
    BARE_PLACE=$1
}

# Nothing can be shown at another path than its own. What docs/flow.md places in the container is named by variables.
bare::_require_own_paths() {
    local mount source target
    for mount in "${CONTAINER_MOUNTS[@]}"; do
        IFS=$'\t' read -r source target _ <<< "$mount"
        case $target in
            "$source" | /tmp | /run/verljob/* | /etc/passwd | /etc/group | "$HOME" | "$CONTAINER_WORKDIR") ;;
            *) fail 64 "the runtime bare cannot show $source as $target" "use it by its own path, or a container's runtime" ;;
        esac
    done
}

# usage: bare::_enter COMMAND…
# Sets RUNTIME_ARGV to COMMAND in the environment's place. Its variables stay as the step has them, but for Slurm's and
# the toolkit's that no container gets, and for secrets, which entrypoint.sh reads from their file.
bare::_enter() {
    local name folder
    bare::_place /run/verljob/lease
    folder=${BARE_PLACE%/*}
    RUNTIME_ARGV=(env)
    while IFS= read -r name; do RUNTIME_ARGV+=(-u "$name"); done < <(environment::strangers)
    for name in PYTHONHOME VIRTUAL_ENV; do RUNTIME_ARGV+=(-u "$name"); done
    for name in "${CONTAINER_ENV[@]}"; do
        [[ ${!name-} != /run/verljob/* ]] || { bare::_place "${!name}" && RUNTIME_ARGV+=("$name=$BARE_PLACE"); }
    done
    bare::_place "$HOME"
    RUNTIME_ARGV+=("HOME=$BARE_PLACE" "PATH=$VERLJOB_IMAGE/bin:$PATH" "PYTHONPATH=$VERLJOB_HOME/entrypoints"
        "VERLJOB_SECRETS=$folder/secrets" "VERLJOB_OUT=$folder/out" "TMPDIR=$folder/tmp" "VERLJOB_RAY_TEMP_DIR=$folder/tmp" "$@")
}

runtime::start_argv() {
    local work temporary
    bare::_require_own_paths
    bare::_place "$CONTAINER_WORKDIR"
    work=$BARE_PLACE
    bare::_place /tmp
    temporary=$BARE_PLACE
    # shellcheck disable=SC2016 # expands there
    bare::_enter bash -c 'cd -- "$0" && exec "$@"' "$work" "$VERLJOB_HOME/entrypoints/entrypoint.sh" node
    [[ -z ${VERLJOB_DRY_RUN:-} ]] || return 0
    ((${#temporary} <= BARE_TEMPORARY_BYTES)) || fail 64 "Ray's sockets in $temporary would have too long paths" \
        "export VERLJOB_LOCAL=a shorter path: the job's folder may have $((BARE_TEMPORARY_BYTES - 4)) bytes"
    ln -s . "$temporary/ray" # where its logs are looked for
}

runtime::exec_argv() { bare::_enter "${@:2}"; }

runtime::unlimited() { printf 'devices cpus memory pids shm ulimits files\n'; }

# The folder is the one that CONTAINER_NAME is the name of.
runtime::remove() { bare::_end_orphans "${VERLJOB_LOCAL:-/tmp}/$1"; }

# usage: bare::_find_orphans FOLDER
# Sets ORPHANS to this account's processes that belong to the job's node-local FOLDER: by its lease in their environment,
# by an open file below its tmp, or by a parent that does. The kernel keeps no mark that a process cannot lose: Ray's
# overwrite their environment with their titles, but hold their logs open.
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
# Sets ORPHANS_PARENT; returns 1 for a process that has ended.
bare::_read_parent() {
    local stat
    { read -r stat < "$1/stat"; } 2> /dev/null || return 1
    # shellcheck disable=SC2086 # its fields, after a name that may hold blanks and brackets
    set -- ${stat##*) }
    ORPHANS_PARENT=$2
    [[ $1 != Z ]]
}

# usage: bare::_belongs PROC-FOLDER FOLDER
# What is another's, or has ended meanwhile, cannot be read and does not belong.
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

# usage: bare::_end_orphans FOLDER
# Kills them and sees them gone. They are stopped first, until a look finds no more: a child that was forked meanwhile
# is known by its parent alone.
bare::_end_orphans() {
    local -r deadline=$((SECONDS + 5))
    local known=0
    bare::_find_orphans "$1"
    while ((${#ORPHANS[@]} > known)); do
        known=${#ORPHANS[@]}
        kill -STOP "${ORPHANS[@]}" 2> /dev/null || : # some may just have ended
        bare::_find_orphans "$1"
    done
    while ((${#ORPHANS[@]})); do
        if ((SECONDS >= deadline)); then
            RUNTIME_SAID="processes ${ORPHANS[*]} do not end"
            return 1
        fi
        kill -KILL "${ORPHANS[@]}" 2> /dev/null || : # some may just have ended
        sleep 0.1
        bare::_find_orphans "$1"
    done
}
