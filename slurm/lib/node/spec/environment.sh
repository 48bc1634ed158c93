# shellcheck shell=bash disable=SC2034 # what it sets is read by the runtime
# Environment variables of the container, passed by name: values would be seen in the process list.
# Sets: CONTAINER_ENV, RAY_AUTH_MODE, RAY_AUTH_TOKEN_PATH.

readonly ENVIRONMENT_NAMES=' SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_NODELIST SLURM_NODEID SLURM_NNODES SLURM_CPUS_PER_TASK
 SLURM_CPUS_ON_NODE SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE SLURM_RESTART_COUNT SLURM_MEM_PER_NODE SLURMD_NODENAME
 SLURM_JOB_END_TIME HOME USER LOGNAME TZ TOKENIZERS_PARALLELISM HYDRA_FULL_ERROR PYTHONHASHSEED OMP_NUM_THREADS
 CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING GPU_MAX_HW_QUEUES HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy
 no_proxy '

# What a user may have exported for the libraries inside. More by name: VERLJOB_ENV=NAME,NAME.
readonly ENVIRONMENT_PREFIXES='VERLJOB_ VERL_ HF_ TRANSFORMERS_ WANDB_ NCCL_ RCCL_ UCX_ FI_ GLOO_ HSA_ HIP_ TORCH_ PYTORCH_ VLLM_
 SGLANG_ RAY_'

# These would point into somebody else's cluster, or are for launch.sh and node.sh alone.
readonly ENVIRONMENT_NEVER=' RAY_ADDRESS RAY_TMPDIR RAY_JOB_ID RAY_AUTH_TOKEN VERLJOB_TOKEN VERLJOB_MOVED VERLJOB_DRY_RUN '

# usage: environment::collect
# Sets CONTAINER_ENV and SECRET_NAMES. A name in CONTAINER_ENV whose variable is unset here is one that the image must
# not set either.
environment::collect() {
    local name
    for name in ${TABLE[unset]:-}; do
        [[ $name =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]] || fail 64 "a table of the platform or profile unsets '$name', which names no variable" "write unset=NAME NAME"
    done
    # Where every device of the node is seen, the mask that Slurm gave is what keeps jobs apart: verl_node makes one of it.
    ! runtime::limits devices || for name in ${TABLE[unset]:-}; do unset "$name"; done
    # For whoever looks into the container, with `ray status` or `ray job`; a Ray before 2.52 does not know them.
    export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$VERLJOB_TOKEN_FILE
    secrets::find
    CONTAINER_ENV=()
    while IFS= read -r name; do
        [[ " ${SECRET_NAMES[*]-} " == *" $name "* ]] || ! environment::wanted "$name" || CONTAINER_ENV+=("$name")
    done < <(compgen -e | sort)
    # shellcheck disable=SC2206 # a list of names
    CONTAINER_ENV+=(${TABLE[unset]:-})
}

# usage: environment::wanted NAME
environment::wanted() {
    local prefix
    local -r more=${VERLJOB_ENV:-}
    [[ $ENVIRONMENT_NEVER != *" $1 "* ]] || return 1
    [[ "${ENVIRONMENT_NAMES//$'\n'/ } ${more//,/ } ${TABLE_ENV[*]-} " != *" $1 "* ]] || return 0
    for prefix in $ENVIRONMENT_PREFIXES; do
        [[ $1 != "$prefix"* ]] || return 0
    done
    return 1
}

# Prints the exported names of Slurm's and of the toolkit that no container gets, and those of secrets: for a runtime
# whose processes would inherit them.
environment::strangers() {
    local name
    while IFS= read -r name; do
        case " ${SECRET_NAMES[*]-} $ENVIRONMENT_NEVER " in
            *" $name "*) printf '%s\n' "$name" ;;
            *)
                [[ ! $name =~ ^(SLURM|SBATCH|SRUN|PMI|VERLJOB_) ]] || environment::wanted "$name" || printf '%s\n' "$name"
                ;;
        esac
    done < <(compgen -e)
}
