# shellcheck shell=bash disable=SC2034 # what it sets is read by launch.sh
# `launch.sh --debug [legacy] RECIPE …`, or VERLJOB_DEBUG: Ray's debugger, which listens for anybody who reaches the node.
# Sets: DEBUG_WORDS, VERLJOB_DEBUG.

# usage: debug::choose ARGUMENT...
# Exports VERLJOB_DEBUG and sets DEBUG_WORDS, how many of the arguments were its own.
debug::choose() {
    DEBUG_WORDS=0
    case ${1:-} in
        --debug)
            VERLJOB_DEBUG=1 DEBUG_WORDS=1
            [[ ${2:-} != legacy ]] || VERLJOB_DEBUG=legacy DEBUG_WORDS=2
            ;;
        --debug=legacy) VERLJOB_DEBUG=legacy DEBUG_WORDS=1 ;;
        -*) fail 64 "'$1' is no flag of launch.sh" "it has --debug and --debug legacy; sbatch's own come before slurm/launch.sh" ;;
    esac
    export VERLJOB_DEBUG=${VERLJOB_DEBUG:-}
    [[ $VERLJOB_DEBUG =~ ^(1|legacy)?$ ]] \
        || fail 64 "VERLJOB_DEBUG=$VERLJOB_DEBUG" "write 1 (Ray's distributed debugger) or legacy (ray debug), or unset it"
    [[ $VERLJOB_DEBUG != 1 || ${VERLJOB_DASHBOARD:-} != 0 ]] \
        || fail 64 "Ray's debugger lists its processes in the dashboard, which VERLJOB_DASHBOARD=0 turns off" "unset one of them"
}

# usage: debug::announce PORT HEAD
debug::announce() {
    case ${VERLJOB_DEBUG:-} in
        1)
            printf 'debugger    breakpoint() and unhandled exceptions wait. Each prints its launch.json for VS Code (debugpy, attach); or\n'
            printf '            the extension Ray Distributed Debugger: add the cluster http://localhost:%s\n' "$1"
            ;;
        legacy)
            printf 'debugger    breakpoint() waits; on %s: %s\n' "$2" \
                "srun --jobid=${SLURM_JOB_ID:-JOB} --overlap --pty --nodes=1 --ntasks=1 --nodelist=$2 $(debug::_ray) debug"
            ;;
    esac
    [[ -z ${VERLJOB_DEBUG:-} ]] || log::warn "a debugger asks nobody who he is: whoever reaches the nodes can run code as $(id -un)"
}

# Prints the words that start the job's own `ray` on the head: without a container the environment's, with the job's token.
debug::_ray() {
    local -r job=$UID-${SLURM_JOB_ID:-JOB}-${VERLJOB_ATTEMPT:-1}-0
    if [[ $VERLJOB_RUNTIME == bare ]]; then
        printf 'env RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=%q %q' "${VERLJOB_LOCAL:-/tmp}/verljob-$job/token" "$VERLJOB_IMAGE/bin/ray"
    else
        printf '%s exec --interactive --tty verljob-%s ray' "$VERLJOB_RUNTIME" "$job"
    fi
}
