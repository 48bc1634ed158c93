# shellcheck shell=bash disable=SC2034 # what it sets is read by node.sh
# Docker. A runtime answers: is it here? how does an image come? how does a container start? how does one look into it?
# what can it not limit? It reads CONTAINER_… and never Slurm. RUNTIME_SAID is the engine's last word on a failure.

# Seconds that the engine may take to answer anything but a pull or a load.
readonly DOCKER_TIMEOUT_S=60

# usage: docker::_ask ARGUMENT...
# Runs docker; sets DOCKER_ANSWER to what it said, and RUNTIME_SAID to the last line of that when it failed.
docker::_ask() {
    local code=0 limit_s=$DOCKER_TIMEOUT_S
    [[ -z $ENDING ]] || limit_s=2 # after TERM the whole node has 5 s
    RUNTIME_SAID=''
    DOCKER_ANSWER=$(timeout "$limit_s" docker "$@" 2>&1) || code=$?
    ((code != 124)) || DOCKER_ANSWER="dockerd gave no answer in $limit_s s"
    ((code == 0)) || RUNTIME_SAID=${DOCKER_ANSWER##*$'\n'}
    return "$code"
}

# usage: docker::_bring ARGUMENT...
# Runs a long docker command as docker::_ask does, so that a signal ends it at once.
docker::_bring() {
    local -r log=$NODE_FOLDER/image.log
    local -r limit_s=${VERLJOB_PULL_TIMEOUT_S:-1800}
    local code=0
    RUNTIME_SAID=''
    process::run timeout "$limit_s" docker "$@" > "$log" 2>&1 || code=$?
    DOCKER_ANSWER=$(< "$log")
    rm -f -- "$log"
    ((code != 124)) || DOCKER_ANSWER="no end after $limit_s s"
    ((code == 0)) || RUNTIME_SAID=${DOCKER_ANSWER##*$'\n'}
    return "$code"
}

runtime::available() {
    local socket=${DOCKER_HOST:-unix:///var/run/docker.sock}
    socket=${socket#unix://}
    command -v docker > /dev/null || fail 69 "there is no docker client on $HOST" "install it, or use another runtime: VERLJOB_RUNTIME"
    ! docker::_ask version --format '{{.Server.Version}}' || return 0
    [[ $RUNTIME_SAID != *'ermission denied'* ]] || fail 77 "$(id -un) may not use Docker on $HOST: $socket belongs to group $(stat -c %G -- "$socket")" \
        "ask for membership in that group"
    fail 69 "Docker does not answer on $HOST: $RUNTIME_SAID" "start dockerd there, or exclude the node: sbatch --exclude=$HOST"
}

# usage: runtime::pull REFERENCE
runtime::pull() {
    docker::_bring pull --quiet "$1"
}

# usage: runtime::load ARCHIVE
# Sets IMAGE_ID to the image in it.
runtime::load() {
    docker::_bring load --input "$1" || return 1
    [[ $DOCKER_ANSWER =~ Loaded\ image(\ ID)?:\ ([^[:space:]]+) ]] && runtime::find "${BASH_REMATCH[2]}"
}

# usage: runtime::find REFERENCE
# Sets IMAGE_ID when the node has the image.
runtime::find() {
    docker::_ask image inspect --format '{{.Id}}' "$1" && IMAGE_ID=${DOCKER_ANSWER##*$'\n'} # below any warning
}

# usage: runtime::is_ours IMAGE
runtime::is_ours() {
    docker::_ask image inspect --format '{{.Config.Entrypoint}}' "$1" && [[ $DOCKER_ANSWER == *'/opt/verljob/entrypoint.sh'* ]]
}

# usage: docker::_field NAME VALUE
# One field of --mount, which docker reads as CSV.
docker::_field() {
    printf '"%s=%s"' "$1" "${2//\"/\"\"}"
}

# Sets RUNTIME_ARGV. The client stays in the foreground; the engine removes the container when it ends.
runtime::start_argv() {
    local item source target mode
    RUNTIME_ARGV=(docker run --rm --name "$CONTAINER_NAME" --network host --workdir "$CONTAINER_WORKDIR" --user "$UID:$(id -g)")
    for item in "${CONTAINER_LABELS[@]}"; do RUNTIME_ARGV+=(--label "$item"); done
    for item in ${CONTAINER_GROUPS[@]+"${CONTAINER_GROUPS[@]}"}; do RUNTIME_ARGV+=(--group-add "$item"); done
    for item in ${CONTAINER_DEVICES[@]+"${CONTAINER_DEVICES[@]}"}; do RUNTIME_ARGV+=(--device "$item"); done
    ((${#CONTAINER_GPUS[@]} == 0)) || RUNTIME_ARGV+=(--gpus "\"device=$(IFS=,; printf '%s' "${CONTAINER_GPUS[*]}")\"")
    for item in "${CONTAINER_MOUNTS[@]}"; do
        IFS=$'\t' read -r source target mode <<< "$item"
        item=type=bind,$(docker::_field source "$source"),$(docker::_field target "$target")
        [[ $mode == rw ]] || item+=,readonly
        RUNTIME_ARGV+=(--mount "$item")
    done
    for item in ${CONTAINER_TMPFS[@]+"${CONTAINER_TMPFS[@]}"}; do
        RUNTIME_ARGV+=(--mount "type=tmpfs,$(docker::_field target "$item")")
    done
    docker::_limits
    for item in "${CONTAINER_ENV[@]}"; do RUNTIME_ARGV+=(--env "$item"); done
    RUNTIME_ARGV+=("$CONTAINER_IMAGE" node)
}

docker::_limits() {
    local item
    RUNTIME_ARGV+=(--cap-drop ALL)
    for item in ${TABLE[capabilities]:-}; do RUNTIME_ARGV+=(--cap-add "$item"); done
    RUNTIME_ARGV+=(--security-opt no-new-privileges)
    for item in ${TABLE[security]:-}; do RUNTIME_ARGV+=(--security-opt "$item"); done
    for item in ${TABLE[ulimits]:-}; do RUNTIME_ARGV+=(--ulimit "$item"); done
    [[ -z ${TABLE[pids]:-} ]] || RUNTIME_ARGV+=(--pids-limit "${TABLE[pids]}")
    [[ -z ${TABLE[shm]:-} ]] || RUNTIME_ARGV+=(--shm-size "${TABLE[shm]}")
    [[ -z $CONTAINER_CPUSET ]] || RUNTIME_ARGV+=(--cpuset-cpus "$CONTAINER_CPUSET")
    [[ -z $CONTAINER_MEMORY ]] || RUNTIME_ARGV+=(--memory "$CONTAINER_MEMORY")
}

# usage: runtime::exec_argv NAME COMMAND…
# Sets RUNTIME_ARGV to COMMAND inside the running container NAME.
runtime::exec_argv() {
    RUNTIME_ARGV=(docker exec --interactive --tty "$@")
}

# Prints what this runtime cannot limit: with Docker everything can be.
runtime::unlimited() {
    printf ''
}

# usage: runtime::signal NAME SIGNAL
runtime::signal() {
    docker::_ask kill --signal "$2" "$1"
}

# usage: runtime::last_words LOG
# Prints why `docker run` failed, which the client says in a line before its hint at --help.
runtime::last_words() {
    local line last=''
    while IFS= read -r line; do
        [[ $line != docker:\ * ]] || last=${line#docker: }
    done < "$1"
    printf '%s\n' "${last:-it did not say why}"
}

# usage: runtime::ran_out_of_memory NAME
# Asked of the engine's recent events, since the container itself is gone.
runtime::ran_out_of_memory() {
    docker::_ask events --since 10m --until 0s --filter "container=$1" --filter event=oom --format '{{.Action}}' \
        && [[ -n $DOCKER_ANSWER ]]
}

# usage: runtime::remove NAME
# Kills it and sees it gone; one that is not there is what was wanted.
runtime::remove() {
    local -r deadline=$((SECONDS + 5))
    docker::_ask rm --force "$1" || : # whether it worked is asked next
    while docker::_ask container inspect "$1" || [[ $RUNTIME_SAID != *'No such container'* ]]; do
        [[ -z $ENDING ]] && ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}
