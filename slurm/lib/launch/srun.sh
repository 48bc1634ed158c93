# shellcheck shell=bash disable=SC2034 # what it sets is read by launch.sh
# The srun of the job: one task on every node.
# Sets: ENDING, SRUN_ARGV, STEP_CODE, STEP_GIVEN_UP, STEP_SILENT, STEP_TALK_UNTIL, VERLJOB_LAUNCH_PID, VERLJOB_TOKEN.
# Descriptors: 8 the output of srun.

# How long after TERM srun may take: every node.sh ends within 5 s, Slurm kills what is left after KillWait (30 s).
readonly STEP_GRACE_S=20

# Sets SRUN_ARGV. It says everything itself: a step inherits neither --cpus-per-task nor, under --export=NONE, a PATH.
srun::argv() {
    SRUN_ARGV=(srun "--nodes=${#NODES[@]}" "--ntasks=${#NODES[@]}" --ntasks-per-node=1 "--cpus-per-task=$NODE_CPUS"
        --cpu-bind=none --export=ALL --kill-on-bad-exit=1 --input=none
        bash -c "$NODE_COMMAND" verljob "$VERLJOB_HOME")
}

# Starts the step and waits for its end. srun's exit code is not used: it is the largest of its tasks', which
# is 143 or 137 as soon as a peer was killed, or it itself. What counts are the verdicts; STEP_CODE is for want of any.
srun::run() {
    local srun listener
    local -r talk=$VERLJOB_RUN_DIR/.talk
    ulimit -c 0 # srun has the token in its environment, and hands the limit on
    VERLJOB_TOKEN=$(od -An -N32 -tx1 /dev/urandom)
    export VERLJOB_TOKEN=${VERLJOB_TOKEN//[[:space:]]/} VERLJOB_LAUNCH_PID=$$
    srun_watch::begin
    STEP_GIVEN_UP=''
    rm -f -- "$talk" && mkfifo -m 600 -- "$talk"
    srun::_listen < "$talk" 7<&- & # it may outlive this shell: the ports go with that
    listener=$!
    exec 8> "$talk" && rm -f -- "$talk"
    [[ -z $ENDING ]] || fail 143 "asked to end before the step began" ""
    "${SRUN_ARGV[@]}" 2>&8 8>&- 7<&- 4>&- &
    srun=$!
    unset VERLJOB_TOKEN
    exec 8>&-
    trap srun::_pass_on TERM INT
    process::await "$srun" "$STEP_GRACE_S" srun_watch::look || srun::_give_up "$srun"
    STEP_CODE=${PROCESS_CODE:-0} ENDING=${ENDING:+$SECONDS} STEP_TALK_UNTIL=$((SECONDS + 2))
    process::await "$listener" 2 srun_watch::talk || { log::warn "the step still has its stderr open" && kill -KILL "$listener"; }
    srun_watch::hear
}

# Who ends this script alone wants the job to end. srun itself answers TERM by killing its tasks at once.
srun::_pass_on() {
    [[ -z $ENDING ]] || return 0
    ENDING=$SECONDS
    srun::signal TERM > /dev/null 7<&- 4>&- & # not waited for: the end goes on
}

# usage: srun::signal NAME [STEP]
# To every task of the step, or of all steps. Asked about a job that is being requeued, scancel tries again for a minute.
srun::signal() {
    timeout --kill-after=2 5 scancel "--signal=$1" "${2:-$SLURM_JOB_ID}" 2> /dev/null
}

# Passes the step's stderr on, files the verdicts in it, and tells by descriptor 4 which node.sh ended in order: that
# line is the last it sends, while a verdict alone may be its container's.
srun::_listen() {
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

# usage: srun::_give_up SRUN
# Slurm ends on the lost nodes what is left of the step, when they are back or this script has ended.
srun::_give_up() {
    log::warn "the step is still there on some nodes: going on without them"
    STEP_GIVEN_UP=yes
    kill -KILL "$1" 2> /dev/null || : # it has just ended by itself
}

# Waits no longer than this for nodes on which node.sh was killed; and for those that were given up, most of which are
# lost, while another may be late with its end: Slurm kills that one with the job.
readonly STEP_SWEEP_S=15 STEP_SWEEP_LATE_S=4

# Sets STEP_SILENT to the nodes that were not heard of.
srun::silent() {
    local id
    STEP_SILENT=()
    for id in "${!NODES[@]}"; do
        [[ " ${STEP_HEARD[*]-} " == *" $id "* ]] || STEP_SILENT+=("${NODES[id]}")
    done
}

# The step lives on only where srun itself was killed. It is ended by its number, since what goes to the whole job may come
# so late that it ends the step that begins next.
srun::_end_others() {
    local id steps
    steps=$(timeout --kill-after=2 5 squeue --noheader --steps "--jobs=$SLURM_JOB_ID" --format=%i) || steps=$SLURM_JOB_ID.
    for id in $steps; do
        [[ ${id#*.} == *[!0-9]* ]] || srun::signal TERM "${id%.}" || : # it has just ended
    done
}

# What a killed node.sh could not do itself: containers, folders and logs of the nodes that were not heard of.
srun::sweep() {
    local -r count=$#
    local limit_s=$STEP_SWEEP_S
    if [[ -n $STEP_GIVEN_UP ]]; then limit_s=$STEP_SWEEP_LATE_S; else srun::_end_others; fi
    timeout --foreground --signal=KILL "$limit_s" srun --overlap --mem=0 "--nodes=$count" "--ntasks=$count" --ntasks-per-node=1 --cpus-per-task=1 \
        "--nodelist=$(IFS=,; printf '%s' "$*")" --cpu-bind=none --export=ALL --input=none \
        bash -c "$NODE_COMMAND" verljob "$VERLJOB_HOME" sweep || log::warn "could not look after $*"
}
