# shellcheck shell=bash disable=SC2034 # its variables are read by the runtimes
# Processes of a container without a PID namespace of its own (enroot up to 4.1.2), or whose client has ended: those whose
# root has the job's lease at its mount point. A process can change its name, environment and parent, but not this.
# Sets: FOUND_PROCESSES, RUNTIME_ERROR.

# usage: container_processes::find LEASE
# Sets FOUND_PROCESSES; returns 1 without any. The root of another account's process cannot be read.
container_processes::find() {
    local root
    FOUND_PROCESSES=()
    for root in /proc/[0-9]*/root; do
        [[ ! $root/run/verljob/lease -ef $1 ]] || { root=${root#/proc/} && FOUND_PROCESSES+=("${root%/root}"); }
    done
    ((${#FOUND_PROCESSES[@]}))
}

# usage: container_processes::kill LEASE
# Kills them until a search finds none.
container_processes::kill() {
    process::kill_found container_processes::find "$1" || { RUNTIME_ERROR="processes ${FOUND_PROCESSES[*]} do not end"; return 1; }
}

# usage: container_processes::enter LEASE COMMAND…
# Replaces this shell by COMMAND in the container, with its variables.
container_processes::enter() {
    local -a flags=(--preserve-credentials --user --mount)
    container_processes::find "$1" || { printf 'no container with %s runs on this node\n' "$1" >&2; return 1; }
    [[ /proc/${FOUND_PROCESSES[0]}/ns/pid -ef /proc/$$/ns/pid ]] || flags+=(--pid) # an account cannot enter the node's
    exec nsenter "${flags[@]}" --target "${FOUND_PROCESSES[0]}" /bin/bash /run/verljob/environment "${@:2}"
}
