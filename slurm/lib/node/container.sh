# shellcheck shell=bash
# Runs the container in the foreground.
# Sets: CONTAINER_CLIENT, VERLJOB_CONTAINER_BEGAN_MS.

# Starts the container and waits for its end; its exit code is this function's.
container::run() {
    runtime::start_argv
    runtime::say_unlimited
    process::now
    export VERLJOB_CONTAINER_BEGAN_MS=$NOW_MS
    lease::hold
    [[ -z $ENDING ]] || exit 143
    "${RUNTIME_ARGV[@]}" 9<&- 8<&- &
    CONTAINER_CLIENT=$!
    trap 'node::_asked_to_end; container::_end' TERM INT
    process::await "$CONTAINER_CLIENT" "$NODE_GRACE_S" lease::look || container::_give_up
    lease::end
    return "${PROCESS_CODE:-137}" # one that was given up is killed
}

# Its client may be stopped, or wait for an engine that never answers; the container itself is removed next.
container::_give_up() {
    log::warn "${LEASE_LOST:-the container is still there $NODE_GRACE_S s after TERM}"
    kill -KILL "$CONTAINER_CLIENT" 2> /dev/null || : # it has just ended by itself
}

container::_end() {
    runtime::signal "$CONTAINER_NAME" TERM 9<&- || : # its client passes Slurm's own TERM on, so it may have ended
}

# Makes sure that it is gone, also when only its client was killed; safe to call without one.
container::remove() {
    [[ -n ${CONTAINER_CLIENT:-} ]] || { runtime::leave; return 0; }
    # An engine that hangs is given no more time than after TERM; one that ended by TERM is due in that time, whoever got it.
    local ENDING=${ENDING:-${LEASE_LOST:+$SECONDS}}
    [[ ${PROCESS_CODE:-} != 143 ]] || ENDING=${ENDING:-$SECONDS}
    runtime::remove "$CONTAINER_NAME" || log::warn "container $CONTAINER_NAME could not be removed: $RUNTIME_SAID"
}

# usage: container::verdict CODE
# For a container that left none: what its exit code says about its end.
container::verdict() {
    local code=76 cause="the container on $HOST ended with $1 and left no verdict" fix="see $NODE_FOLDER/node.log"
    case $1 in
        125) code=69 cause="$VERLJOB_RUNTIME did not start the container on $HOST: $(runtime::last_words "$NODE_FOLDER/node.log")" ;;
        126 | 127) code=64 cause="the image's entrypoint could not be run on $HOST" ;;
        137)
            cause="the container on $HOST was killed"
            if runtime::ran_out_of_memory "$CONTAINER_NAME"; then
                cause+=": it used more than the job's $VERLJOB_MEMORY_BYTES bytes of memory" fix="ask for more: sbatch --mem"
            fi
            ;;
    esac
    verdict::set "$code" self "$cause" "$fix"
}
