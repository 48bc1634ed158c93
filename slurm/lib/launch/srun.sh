# shellcheck shell=bash disable=SC2034 # its variables are read by launch.sh
# The srun of the job, one task on every node: starts it, watches it, and cleans up nodes whose node.sh was killed.
# Sets: ENDING, SRUN_ARGV, STEP_ABANDONED, STEP_CODE, STEP_ENDED_AT, STEP_FAULT, STEP_HEAD_VERDICT, STEP_MISSING,
#   STEP_PATIENCE, STEP_REPORTED, STEP_STDERR_UNTIL, STEP_STOPPED, STEP_TERM_SENT, VERLJOB_LAUNCH_PID, VERLJOB_TOKEN.
# Descriptors: 8 the stderr of srun, 4 the reports of srun::_read_stderr.

# Seconds that srun may take after TERM: every node.sh ends within 5 s, Slurm kills the rest after KillWait (30 s).
readonly STEP_GRACE_S=20
# Seconds after the end of the first node.sh until the others get TERM, and until they count as lost; times ten after a
# success, so that they can save their logs.
readonly STEP_TERM_S=2 STEP_LOST_S=6 STEP_SUCCESS_PATIENCE=10
# Seconds for srun::sweep, and for that of an abandoned step, most of whose nodes are lost.
readonly STEP_SWEEP_S=15 STEP_SWEEP_ABANDONED_S=4

# Sets SRUN_ARGV. Every option is explicit: a step inherits no --cpus-per-task and, under --export=NONE, no PATH.
srun::make_argv() {
    SRUN_ARGV=(srun "--nodes=${#NODES[@]}" "--ntasks=${#NODES[@]}" --ntasks-per-node=1 "--cpus-per-task=$NODE_CPUS"
        --cpu-bind=none --export=ALL --kill-on-bad-exit=1 --input=none
        bash -c "$NODE_COMMAND" verljob "$VERLJOB_HOME")
}

# Starts the step and waits for its end. STEP_CODE counts only if no node leaves a verdict: srun returns the largest code
# of its tasks, which is 143 or 137 as soon as one was killed.
srun::run() {
    local srun listener
    local -r fifo=$VERLJOB_RUN_DIR/.srun-stderr
    ulimit -c 0 # srun has the token in its environment, and passes the limit on
    VERLJOB_TOKEN=$(od -An -N32 -tx1 /dev/urandom)
    export VERLJOB_TOKEN=${VERLJOB_TOKEN//[[:space:]]/} VERLJOB_LAUNCH_PID=$$
    STEP_REPORTED=() STEP_ENDED_AT='' STEP_PATIENCE=1 STEP_TERM_SENT='' STEP_STOPPED=0 STEP_FAULT='' STEP_ABANDONED=''
    STEP_HEAD_VERDICT=$VERLJOB_RUN_DIR/nodes/0-${NODES[0]}/verdict
    exec 4<> <(:) # open at both ends, so that a read never meets end of file
    rm -f -- "$fifo" && mkfifo -m 600 -- "$fifo"
    srun::_read_stderr < "$fifo" 7<&- & # without the port lock, since it may outlive this shell
    listener=$!
    exec 8> "$fifo" && rm -f -- "$fifo"
    [[ -z $ENDING ]] || fail 143 "stopped before the step began" ""
    "${SRUN_ARGV[@]}" 2>&8 8>&- 7<&- 4>&- &
    srun=$!
    unset VERLJOB_TOKEN
    exec 8>&-
    trap srun::_on_term TERM INT
    process::await "$srun" "$STEP_GRACE_S" srun::_check || srun::_abandon "$srun"
    STEP_CODE=${PROCESS_CODE:-0} ENDING=${ENDING:+$SECONDS} STEP_STDERR_UNTIL=$((SECONDS + 2))
    process::await "$listener" 2 srun::_check_stderr || { log::warn "a process of the step still holds its stderr" && kill -KILL "$listener"; }
    srun::_read_reports
}

# Ends the job when only this script gets TERM. srun would kill its tasks at once.
srun::_on_term() {
    [[ -z $ENDING ]] || return 0
    ENDING=$SECONDS
    srun::signal TERM > /dev/null 7<&- 4>&- & # in the background: the shutdown continues
}

# usage: srun::signal NAME [STEP]
# Signals every task of one step or of all steps. For a job that is being requeued, scancel retries for a minute.
srun::signal() {
    timeout --kill-after=2 5 scancel "--signal=$1" "${2:-$SLURM_JOB_ID}" 2> /dev/null
}

# Copies the step's stderr, saves the verdicts in it and reports each on descriptor 4. It is the last line of a node.sh,
# while a verdict file may be its container's.
srun::_read_stderr() {
    local line
    trap '' TERM INT USR1
    while IFS= read -r line; do
        if [[ $line == verljob-verdict$'\t'* ]] && verdict::receive "$VERLJOB_RUN_DIR" "$line" >&2; then
            printf '%s %s\n' "$VERDICT_NODE" "${VERDICT[code]}" >&4
        else
            printf '%s\n' "$line" >&2
        fi
    done
}

# Adds the nodes that have reported since the last call.
srun::_read_reports() {
    local id code
    while read -t 0 -u 4; do
        read -r -u 4 id code
        STEP_REPORTED+=("$id")
        [[ -n $STEP_ENDED_AT ]] || STEP_ENDED_AT=$SECONDS
        [[ $code != 0 ]] || STEP_PATIENCE=$STEP_SUCCESS_PATIENCE
    done
}

# For process::await: reads srun's stderr to its end, unless another process holds it open.
srun::_check_stderr() {
    srun::_read_reports
    ((SECONDS <= STEP_STDERR_UNTIL))
}

# usage: srun::_check SRUN
# For process::await. One ended node.sh ends the job; srun would wait forever for one that was stopped or lost.
srun::_check() {
    local since
    srun::_read_reports
    srun::_check_head_verdict
    srun::_resume "$1"
    [[ -n $STEP_ENDED_AT ]] || return 0
    since=$((SECONDS - STEP_ENDED_AT))
    ((since < STEP_TERM_S * STEP_PATIENCE)) || srun::_send_term
    ((since < STEP_LOST_S * STEP_PATIENCE))
}

# Reads the verdict of the head's container too, since its node.sh may be stopped; after anything but a loss allows for an
# orderly shutdown (verl_node/node/shutdown.py).
srun::_check_head_verdict() {
    local line
    [[ -z $STEP_ENDED_AT ]] && ownership::is_file "$STEP_HEAD_VERDICT" || return 0
    read -r line < "$STEP_HEAD_VERDICT"
    STEP_ENDED_AT=$SECONDS
    [[ $line == code=76 ]] || STEP_ENDED_AT=$((SECONDS + 2))
    [[ $line != code=0 ]] || STEP_PATIENCE=$STEP_SUCCESS_PATIENCE
}

# Sends TERM to the step once; a stopped task needs CONT first.
srun::_send_term() {
    [[ -z $STEP_TERM_SENT ]] || return 0
    STEP_TERM_SENT=yes
    srun::signal CONT || return 0 # the step has ended already
    srun::signal TERM || return 0
}

# usage: srun::_resume SRUN
# Ends the step if srun is stopped for VERLJOB_STALL_S, and lets srun continue to report that.
srun::_resume() {
    process::is_stopped "$1" || { STEP_STOPPED=0; return 0; }
    ((++STEP_STOPPED > VERLJOB_STALL_S)) || return 0
    STEP_FAULT="srun was stopped on $HOST (SIGSTOP)"
    kill -CONT "$1"
    srun::_send_term
}

# usage: srun::_abandon SRUN
# Slurm ends the rest of the step when the lost nodes are back or this script has ended.
srun::_abandon() {
    log::warn "the step still runs on some nodes: continuing without them"
    STEP_ABANDONED=yes
    kill -KILL "$1" 2> /dev/null || : # it has just ended
}

# Sets STEP_MISSING to the nodes that have not reported.
srun::find_missing() {
    local id
    STEP_MISSING=()
    for id in "${!NODES[@]}"; do
        [[ " ${STEP_REPORTED[*]-} " == *" $id "* ]] || STEP_MISSING+=("${NODES[id]}")
    done
}

# usage: srun::sweep NODE...
# Removes containers, folders and logs of nodes whose killed node.sh could not.
srun::sweep() {
    local -r count=$#
    local limit_s=$STEP_SWEEP_S
    if [[ -n $STEP_ABANDONED ]]; then limit_s=$STEP_SWEEP_ABANDONED_S; else srun::_end_steps; fi
    timeout --foreground --signal=KILL "$limit_s" srun --overlap --mem=0 "--nodes=$count" "--ntasks=$count" --ntasks-per-node=1 --cpus-per-task=1 \
        "--nodelist=$(IFS=,; printf '%s' "$*")" --cpu-bind=none --export=ALL --input=none \
        bash -c "$NODE_COMMAND" verljob "$VERLJOB_HOME" sweep || log::warn "could not clean up $*"
}

# Ends a step that outlives its killed srun; by its number, since a late signal to the whole job could end the next step.
srun::_end_steps() {
    local id steps
    steps=$(timeout --kill-after=2 5 squeue --noheader --steps "--jobs=$SLURM_JOB_ID" --format=%i) || steps=$SLURM_JOB_ID.
    for id in $steps; do
        [[ ${id#*.} == *[!0-9]* ]] || srun::signal TERM "${id%.}" || : # it has just ended
    done
}
