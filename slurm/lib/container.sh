# shellcheck shell=bash
# The container, in the foreground under this shell's eyes.

# Starts the container and waits for its end; its exit code is this function's.
container::run() {
    runtime::start_argv
    export VERLJOB_CONTAINER_BEGAN_MS
    VERLJOB_CONTAINER_BEGAN_MS=$(date +%s%3N)
    # The lease: whoever reads it in the container sees end of file when this shell is gone, however it went. The client
    # must not inherit it, since it may outlive this shell.
    exec 9<> "$LOCAL/lease"
    [[ -z $ENDING ]] || exit 143
    "${RUNTIME_ARGV[@]}" 9<&- &
    CONTAINER_CLIENT=$!
    trap 'node::_asked_to_end; container::_end' TERM INT
    process::await "$CONTAINER_CLIENT" "$NODE_GRACE_S" || say::warn "the container is still there $NODE_GRACE_S s after TERM"
    exec 9<&-
    return "$PROCESS_CODE"
}

container::_end() {
    runtime::signal "$CONTAINER_NAME" TERM 9<&- || : # its client passes Slurm's own TERM on, so it may have ended
}

# Makes sure that it is gone, also when only its client was killed; safe to call without one.
container::remove() {
    [[ -n ${CONTAINER_CLIENT:-} ]] || return 0
    runtime::remove "$CONTAINER_NAME" || say::warn "container $CONTAINER_NAME could not be removed: $RUNTIME_SAID"
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
