# shellcheck shell=bash
# Ends launch.sh: chooses the job's verdict from the nodes' verdicts, writes result.json, prints explanation and verdict.
# Sets: STEP_FAULT, VERDICT.

# Sets VERDICT to the job's, and exits with its code.
finish::choose_verdict() {
    local silent
    srun::find_missing
    silent=${STEP_MISSING[*]-}
    [[ -z $silent || -n $ENDING ]] || finish::_sweep
    if [[ -z $STEP_FAULT$ENDING$STEP_ABANDONED && $silent == "${NODES[*]}" ]] && ((STEP_CODE > 128)); then
        STEP_FAULT="srun was killed on $HOST, or node.sh on $silent"
    fi
    run_dir::read_verdict || fail 76 "${STEP_FAULT:-no node left a verdict}" "read the lines above and $VERLJOB_RUN_DIR/nodes"
    # Slurm's signal may reach the container and not node.sh: proctrack/linuxproc signals the processes that it finds in /proc.
    if [[ -n $ENDING && ${VERDICT[origin]} != self ]]; then
        [[ ${VERDICT[origin]} != outside ]] || { VERDICT[code]=143 && verdict::classify; }
        finish::_explain_end
    elif [[ ${VERDICT[origin]} == signal && -n $STEP_FAULT$silent ]]; then
        fail 76 "${STEP_FAULT:-node.sh was killed on $silent, or the node was lost}" "see $VERLJOB_RUN_DIR/nodes"
    fi
    exit "${VERDICT[code]}"
}

# Cleans up on nodes that sent no verdict, except a node that timed out and that the head lost: it would answer no step.
finish::_sweep() {
    local node
    local -a present=()
    for node in "${STEP_MISSING[@]}"; do
        [[ -n $STEP_ABANDONED ]] && run_dir::read_verdict && [[ ${VERDICT[code]}$RUNDIR_VERDICT_ID == 760 && ${VERDICT[host]} == "$node" ]] \
            || present+=("$node")
    done
    ((${#present[@]} == 0)) || srun::sweep "${present[@]}"
}

# The nodes only know that a signal came; launch.sh knows the reason.
finish::_explain_end() {
    local now
    printf -v now '%(%s)T' -1
    if ((${SLURM_JOB_END_TIME:-0} > 0 && now + STEP_GRACE_S >= SLURM_JOB_END_TIME)); then
        verdict::explain "the job reached its time limit, $JOB_LIMIT" "ask for more: sbatch --time"
    else
        verdict::explain "the job was ended from outside (scancel or preemption)" ''
    fi
}

# The EXIT trap: result.json, the explanation, the last line, and the exit code.
finish::report() {
    local -r code=$?
    trap - EXIT
    ports::release
    [[ -z ${VERLJOB_DRY_RUN:-} || $code != 0 ]] || exit 0
    [[ -n ${VERDICT[code]:-} ]] || verdict::set "$code" self "launch.sh ended unexpectedly with $code" "see the lines above"
    requeue::decide
    if [[ -n ${RUNDIR_READY:-} ]]; then
        verdict::write_result "$VERLJOB_RUN_DIR" "${VERLJOB_ATTEMPT:-1}" ${NODES[@]+"${NODES[@]}"} || log::warn "result.json could not be written"
    fi
    finish::_explain "${VERLJOB_RUN_DIR:-}/explanation"
    verdict::sentence
    requeue::again
    exit "${VERDICT[code]}"
}

# usage: finish::_explain FILE
# Prints why a job failed, before its last line: FILE, which the head wrote from the logs, if the head's verdict is the
# job's, else the fields of the verdict.
finish::_explain() {
    [[ ${VERDICT[code]} != 0 ]] || return 0
    if [[ ${RUNDIR_VERDICT_ID:-} == 0 && -s $1 ]] && ownership::is_file "$1"; then
        log::printable "$(< "$1")"
        return 0
    fi
    finish::_row 'first failure' "${VERDICT[class]}: ${VERDICT[cause]}"
    finish::_row where "${VERDICT[host]}"
    finish::_row fix "${VERDICT[fix]}"
    finish::_row read docs/faults.md
}

# usage: finish::_row NAME TEXT
finish::_row() {
    [[ -z $2 ]] || log::printable "$(printf '%-14s%s' "$1" "${2//$'\n'/ }")"
}
