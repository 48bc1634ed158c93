# shellcheck shell=bash disable=SC2034 # its variables are read by the runtimes
# Processes of a container without a PID namespace of its own (enroot up to 4.1.2), or whose client has ended: those whose
# root has the job's lease at its mount point. A process can change its name, environment and parent, but not this.
# Sets: CONTAINER_PROCESSES, RUNTIME_ERROR.

# usage: container_processes::find LEASE
# Sets CONTAINER_PROCESSES; returns 1 without any. The root of another account's process cannot be read.
container_processes::find() {
    local root
    CONTAINER_PROCESSES=()
    for root in /proc/[0-9]*/root; do
        [[ ! $root/run/verljob/lease -ef $1 ]] || { root=${root#/proc/} && CONTAINER_PROCESSES+=("${root%/root}"); }
    done
    ((${#CONTAINER_PROCESSES[@]}))
}

# usage: container_processes::kill LEASE
# Kills them until a search finds none.
container_processes::kill() {
    local -r until=$((SECONDS + (${#ENDING} ? 2 : 5))) # after TERM the whole node has 5 s
    while container_processes::find "$1"; do
        if ((SECONDS >= until)); then
            RUNTIME_ERROR="processes ${CONTAINER_PROCESSES[*]} do not end"
            return 1
        fi
        kill -KILL "${CONTAINER_PROCESSES[@]}" 2> /dev/null || : # some may have just ended
        sleep 0.1
    done
}

# usage: container_processes::enter LEASE COMMAND…
# Replaces this shell by COMMAND in the container, with its variables.
container_processes::enter() {
    local -a flags=(--preserve-credentials --user --mount)
    container_processes::find "$1" || { printf 'no container with %s runs on this node\n' "$1" >&2; return 1; }
    [[ /proc/${CONTAINER_PROCESSES[0]}/ns/pid -ef /proc/$$/ns/pid ]] || flags+=(--pid) # an account cannot enter the node's
    exec nsenter "${flags[@]}" --target "${CONTAINER_PROCESSES[0]}" /bin/bash /run/verljob/environment "${@:2}"
}
