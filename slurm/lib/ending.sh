# shellcheck shell=bash
# How launch.sh ends: which verdict stands for the job, and saying it.

ending::judge() {
    rundir::silent
    [[ ${#RUNDIR_SILENT[@]} == 0 || -n $ENDING ]] || step::sweep "${RUNDIR_SILENT[@]}"
    rundir::verdict || fail 76 "no node left a verdict" "read the lines above and $VERLJOB_RUN_DIR/nodes"
    if [[ ${VERDICT[origin]} == signal && -z $ENDING && ${#RUNDIR_SILENT[@]} != 0 ]]; then
        fail 76 "node.sh was killed on ${RUNDIR_SILENT[*]}, or the node was lost" "see $VERLJOB_RUN_DIR/nodes"
    elif [[ ${VERDICT[origin]} == signal && -n $ENDING ]]; then
        ending::_who
    fi
    exit "${VERDICT[code]}"
}

# The nodes know a signal; only here it is known whose.
ending::_who() {
    local now
    printf -v now '%(%s)T' -1
    if ((${SLURM_JOB_END_TIME:-0} > 0 && now + STEP_GRACE_S >= SLURM_JOB_END_TIME)); then
        verdict::explain "the job reached its time limit, $JOB_LIMIT" "ask for more: sbatch --time"
    else
        verdict::explain "the job was ended from outside (scancel or preemption)" ''
    fi
}

# The EXIT trap: the last line, result.json where not the head's own verdict is the job's, and the code.
ending::report() {
    local -r code=$?
    trap - EXIT
    ports::release
    [[ -z ${VERLJOB_DRY_RUN:-} || $code != 0 ]] || exit 0
    [[ -n ${VERDICT[code]:-} ]] || verdict::set "$code" self "launch.sh ended unexpectedly with $code" "see the lines above"
    if [[ -d ${VERLJOB_RUN_DIR:-}/nodes && ! (${RUNDIR_SPEAKER:-} == 0 && -e $VERLJOB_RUN_DIR/result.json) ]]; then
        verdict::result "$VERLJOB_RUN_DIR/result.json" "${VERLJOB_ATTEMPT:-1}" ${NODES[@]+"${NODES[@]}"}
    fi
    verdict::sentence
    exit "${VERDICT[code]}"
}
