# shellcheck shell=bash disable=SC2034 # its variables are read by its callers
# Runs the node's container in the foreground, watches it, and removes it and stale ones.
#
# Two FIFOs connect this shell and the supervisor in the container. Lease: the supervisor reads end of file when this shell is
# gone, even by SIGKILL, and misses its heartbeats when it is stopped. Pulse: this shell kills a container that sends no
# heartbeat, being stopped or frozen, or whose end the engine does not report.
# Sets: CONTAINER_CLIENT, LEASE_CORES, LEASE_LOST, LEASE_SILENCE, LEASE_STALL_S, LEASE_STOPPED, VERLJOB_CONTAINER_BEGAN_MS.
# Descriptors: 9 the lease, 8 the container's heartbeats.

# A missing heartbeat counts less on a node with more tasks ready to run, as in verl_node/supervision/lease.py.
readonly LEASE_TASKS_PER_CORE=16
readonly STALE_TIMEOUT_S=10 # for Slurm's controller to look up a job

# Starts the container and waits for its end; returns its exit code.
container::run() {
    runtime::start_argv
    runtime::log_unlimited
    process::now
    export VERLJOB_CONTAINER_BEGAN_MS=$NOW_MS
    container::_open_lease
    [[ -z $ENDING ]] || exit 143
    "${RUNTIME_ARGV[@]}" 9<&- 8<&- 6<&- &
    CONTAINER_CLIENT=$!
    trap 'node::_on_term; container::_terminate' TERM INT
    process::await "$CONTAINER_CLIENT" "$NODE_GRACE_S" container::_check || container::_abort
    exec 9<&- 8<&-
    return "${PROCESS_CODE:-137}" # container::_abort kills it
}

# Kills the client; container::remove then removes the container.
container::_abort() {
    log::warn "${LEASE_LOST:-the container still runs $NODE_GRACE_S s after TERM}"
    kill -KILL "$CONTAINER_CLIENT" 2> /dev/null || : # it has just ended
}

container::_terminate() {
    runtime::signal "$CONTAINER_NAME" TERM 9<&- || : # it may have ended: its client forwards Slurm's own TERM
}

# Removes the container, which may outlive its client.
container::remove() {
    [[ -n ${CONTAINER_CLIENT:-} ]] || { runtime::cleanup; return 0; }
    # With ENDING set, an engine that hangs gets no more time than after TERM.
    local ENDING=${ENDING:-${LEASE_LOST:+$SECONDS}}
    [[ ${PROCESS_CODE:-} != 143 ]] || ENDING=${ENDING:-$SECONDS}
    runtime::remove "$CONTAINER_NAME" || log::warn "container $CONTAINER_NAME could not be removed: $RUNTIME_ERROR"
}

# usage: container::verdict CODE
# Sets the verdict of a container that left none, from its exit code.
container::verdict() {
    local code=76 cause="the container on $HOST ended with $1 and left no verdict" fix="see $NODE_FOLDER/node.log"
    if runtime::failed_to_start "$1" "$NODE_FOLDER/node.log"; then
        verdict::set 69 self "$VERLJOB_RUNTIME did not start the container on $HOST: $(runtime::start_error "$NODE_FOLDER/node.log")" "$fix"
        return
    fi
    case $1 in
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

# Opens lease and pulse at both ends, so that a read never meets end of file. No child may inherit the lease.
container::_open_lease() {
    [[ ${VERLJOB_STALL_S:-} =~ ^[1-9][0-9]{0,4}$ ]] || fail 64 "VERLJOB_STALL_S is '${VERLJOB_STALL_S:-}'" "start node.sh by launch.sh, which sets it"
    LEASE_STALL_S=$VERLJOB_STALL_S
    exec 9<> "$LOCAL/lease"
    exec 8<> "$LOCAL/out/pulse"
    LEASE_SILENCE='' LEASE_STOPPED=0 LEASE_LOST=''
    LEASE_CORES=$(nproc --all)
}

# usage: container::_check CLIENT
# For process::await: sends a heartbeat and reads the container's. After VERLJOB_STALL_S checks without one, counted from the
# first and in hundredths, or with a stopped process, sets LEASE_LOST to the reason.
container::_check() {
    local beat
    printf . >&9
    [[ -z $LEASE_SILENCE ]] || container::_count_miss
    while read -t 0 -u 8; do read -r -N 1 -u 8 beat && LEASE_SILENCE=0; done
    container::_check_stopped "$1"
    ((${LEASE_SILENCE:-0} <= LEASE_STALL_S * 100)) \
        || LEASE_LOST="the container on $HOST sent no heartbeat for $LEASE_STALL_S s: it was stopped or frozen, or its engine hangs"
    [[ -z $LEASE_LOST ]]
}

# Adds a missed heartbeat: 100, or less on an overloaded node. Without a fork.
container::_count_miss() {
    local tasks='' weight=100
    { read -r _ _ _ tasks _ < /proc/loadavg; } 2> /dev/null || : # then the weight is 100
    tasks=${tasks%/*}
    [[ $tasks =~ ^[0-9]+$ ]] || tasks=0
    ((tasks <= LEASE_TASKS_PER_CORE * LEASE_CORES)) || weight=$((100 * LEASE_TASKS_PER_CORE * LEASE_CORES / tasks))
    LEASE_SILENCE=$((LEASE_SILENCE + (weight > 6 ? weight : 6)))
}

# usage: container::_check_stopped CLIENT
container::_check_stopped() {
    local stopped=''
    ! process::is_stopped "$1" || stopped="the client of $VERLJOB_RUNTIME"
    [[ $SLURM_NODEID != 0 ]] || ! process::is_stopped "${VERLJOB_LAUNCH_PID:-0}" || stopped=launch.sh
    LEASE_STOPPED=$((${#stopped} ? LEASE_STOPPED + 1 : 0))
    ((LEASE_STOPPED > LEASE_STALL_S)) || return 0
    LEASE_LOST="$stopped on $HOST was stopped $LEASE_STALL_S s ago (SIGSTOP)"
    [[ $stopped != launch.sh ]] || kill -CONT "$VERLJOB_LAUNCH_PID" # it has to end the job
}

# Removes this account's containers whose job Slurm no longer knows; none while Slurm does not answer.
container::remove_stale() {
    local containers name job
    containers=$(runtime::list verljob.job) || { log::warn "the engine does not list its containers"; return 0; }
    while IFS=$'\t' read -r name job; do
        [[ $name == "verljob-$UID-"* && $job =~ ^[0-9]+$ ]] || continue
        container::job_has_ended "$job" || continue
        log::note "removing the container $name of job $job, which Slurm no longer knows"
        runtime::remove "$name" || log::warn "container $name could not be removed: $RUNTIME_ERROR"
    done <<< "$containers"
}

# usage: container::job_has_ended JOB
# squeue lists pending, running and completing jobs; for one that ended long ago it says that the number is invalid.
container::job_has_ended() {
    local answer
    if answer=$(timeout --kill-after=2 "$STALE_TIMEOUT_S" squeue --noheader "--jobs=$1" --format=%T 2>&1); then
        [[ -z $answer ]]
    else
        [[ $answer == *'Invalid job id'* ]]
    fi
}
