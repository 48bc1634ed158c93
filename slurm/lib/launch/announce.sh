# shellcheck shell=bash
# Prints the first lines of the job's output: nodes, image, run directory, dashboard, time limit.

announce::job() {
    printf 'job         %s, %s on %d nodes: %s\n' "$SLURM_JOB_ID" "$RECIPE_NAME" "${#NODES[@]}" "${NODES[*]}"
    printf 'image       %s, platform %s, runtime %s\n' "$VERLJOB_IMAGE" "$VERLJOB_PLATFORM" "$VERLJOB_RUNTIME"
    printf 'run folder  %s\n' "$VERLJOB_RUN_DIR"
    announce::_dashboard "${VERLJOB_HEAD_PORTS##*,}" "$(id -un)" "${SLURM_SUBMIT_HOST:-LOGIN-NODE}"
    debug::announce "${VERLJOB_HEAD_PORTS##*,}" "${NODES[0]}"
    printf 'time limit  %s, until %s\n' "$JOB_LIMIT" "$JOB_END"
    ! requeue::asked || printf 'attempt     %d of %d at most, checkpoints in %s\n' "$VERLJOB_ATTEMPT" "$VERLJOB_ATTEMPTS" "$VERLJOB_CHECKPOINTS"
}

# usage: announce::_dashboard PORT USER LOGIN-NODE
# It lies on the head's loopback, which is reached through an ssh login there; a site that allows none asks for `node`.
announce::_dashboard() {
    local -r port=$1 user=$2 login=$3
    case ${VERLJOB_DASHBOARD:-} in
        0)
            printf 'dashboard   off (VERLJOB_DASHBOARD=0)\n'
            return
            ;;
        node) printf 'dashboard   ssh -N -L %s:%s:%s %s@%s' "$port" "$HEAD_ADDRESS" "$port" "$user" "$login" ;;
        *) printf 'dashboard   ssh -N -L %s:127.0.0.1:%s -J %s@%s %s@%s' "$port" "$port" "$user" "$login" "$user" "$HEAD_ADDRESS" ;;
    esac
    printf ', then http://localhost:%s\n' "$port"
    printf 'its token   srun --jobid=%s --overlap --nodes=1 --ntasks=1 --mem=0 --nodelist=%s cat %s\n' "$SLURM_JOB_ID" "${NODES[0]}" \
        "${VERLJOB_LOCAL:-/tmp}/verljob-$UID-$SLURM_JOB_ID-$VERLJOB_ATTEMPT-0/token"
}
