# shellcheck shell=bash
# Ends launch.sh: chooses the job's verdict among the nodes', writes result.json, prints the explanation and the verdict.
# Sets: STEP_FAULT, VERDICT.

finish::judge() {
    local silent
    srun::find_missing
    silent=${STEP_MISSING[*]-}
    [[ -z $silent || -n $ENDING ]] || finish::_look_after
    if [[ -z $STEP_FAULT$ENDING$STEP_ABANDONED && $silent == "${NODES[*]}" ]] && ((STEP_CODE > 128)); then
        STEP_FAULT="srun was killed on $HOST, or node.sh on $silent"
    fi
    run_dir::read_verdict || fail 76 "${STEP_FAULT:-no node left a verdict}" "read the lines above and $VERLJOB_RUN_DIR/nodes"
    # Slurm's signal may reach the container and not node.sh: proctrack/linuxproc signals whom it saw in /proc just then.
    if [[ -n $ENDING && ${VERDICT[origin]} != self ]]; then
        [[ ${VERDICT[origin]} != outside ]] || { VERDICT[code]=143 && verdict::classify; }
        finish::_who
    elif [[ ${VERDICT[origin]} == signal && -n $STEP_FAULT$silent ]]; then
        fail 76 "${STEP_FAULT:-node.sh was killed on $silent, or the node was lost}" "see $VERLJOB_RUN_DIR/nodes"
    fi
    exit "${VERDICT[code]}"
}

# A node that was given up, and of which the head says that it was lost, answers no step: the job's end is not held up for it.
finish::_look_after() {
    local node
    local -a present=()
    for node in "${STEP_MISSING[@]}"; do
        [[ -n $STEP_ABANDONED ]] && run_dir::read_verdict && [[ ${VERDICT[code]}$RUNDIR_VERDICT_ID == 760 && ${VERDICT[host]} == "$node" ]] \
            || present+=("$node")
    done
    ((${#present[@]} == 0)) || srun::sweep "${present[@]}"
}

# The nodes know a signal; only here it is known whose.
finish::_who() {
    local now
    printf -v now '%(%s)T' -1
    if ((${SLURM_JOB_END_TIME:-0} > 0 && now + STEP_GRACE_S >= SLURM_JOB_END_TIME)); then
        verdict::explain "the job reached its time limit, $JOB_LIMIT" "ask for more: sbatch --time"
    else
        verdict::explain "the job was ended from outside (scancel or preemption)" ''
    fi
}

# Whether the head's result.json is already the job's: its container wrote it, and node.sh may have known better.
finish::_told() {
    local text=''
    [[ ${RUNDIR_VERDICT_ID:-} == 0 ]] && ownership::is_file "$VERLJOB_RUN_DIR/result.json" || return 1
    text=$(< "$VERLJOB_RUN_DIR/result.json")
    [[ $text =~ \"code\":[[:space:]]*${VERDICT[code]}[^0-9] ]]
}

# The EXIT trap: the last line, result.json where not the head's own verdict is the job's, and the code.
finish::report() {
    local -r code=$?
    local found=''
    trap - EXIT
    ports::release
    [[ -z ${VERLJOB_DRY_RUN:-} || $code != 0 ]] || exit 0
    [[ -n ${VERDICT[code]:-} ]] || verdict::set "$code" self "launch.sh ended unexpectedly with $code" "see the lines above"
    requeue::decide
    if finish::_told; then
        found=$VERLJOB_RUN_DIR/explanation
    elif [[ -n ${RUNDIR_READY:-} ]]; then
        verdict::write_result "$VERLJOB_RUN_DIR/result.json" "${VERLJOB_ATTEMPT:-1}" ${NODES[@]+"${NODES[@]}"}
    fi
    finish::_explain "$found"
    verdict::sentence
    requeue::again
    exit "${VERDICT[code]}"
}

# usage: finish::_explain FILE
# Prints why a job failed, before its last line: FILE, which the head wrote of the logs, else what the verdict says.
finish::_explain() {
    [[ ${VERDICT[code]} != 0 ]] || return 0
    if [[ -s $1 ]] && ownership::is_file "$1"; then
        log::printable "$(< "$1")"
        return 0
    fi
    finish::_row 'first failure' "${VERDICT[class]}: ${VERDICT[cause]}"
    finish::_row where "${VERDICT[host]}"
    finish::_row fix "${VERDICT[fix]}"
    finish::_row read docs/faults.md
}

# usage: finish::_row NAME WORDS
finish::_row() {
    [[ -z $2 ]] || log::printable "$(printf '%-14s%s' "$1" "${2//$'\n'/ }")"
}
