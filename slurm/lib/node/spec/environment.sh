# shellcheck shell=bash disable=SC2034 # its variables are read by the runtime
# Environment variables of the container, passed by name: values would be visible in the process list.
# Sets: CONTAINER_ENV, CONTAINER_UNSET, CUDA_VISIBLE_DEVICES, RAY_AUTH_MODE, RAY_AUTH_TOKEN_PATH.

readonly ENVIRONMENT_NAMES=' SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_NODELIST SLURM_NODEID SLURM_NNODES SLURM_CPUS_PER_TASK
 SLURM_CPUS_ON_NODE SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE SLURM_RESTART_COUNT SLURM_MEM_PER_NODE SLURMD_NODENAME
 SLURM_JOB_END_TIME HOME USER LOGNAME TZ TOKENIZERS_PARALLELISM HYDRA_FULL_ERROR PYTHONHASHSEED OMP_NUM_THREADS
 CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING GPU_MAX_HW_QUEUES HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy
 no_proxy '

# A user's exports for the libraries in the container. VERLJOB_ENV=NAME,NAME adds further names.
readonly ENVIRONMENT_PREFIXES='VERLJOB_ VERL_ HF_ TRANSFORMERS_ WANDB_ NCCL_ RCCL_ UCX_ FI_ GLOO_ HSA_ HIP_ TORCH_ PYTORCH_ VLLM_
 SGLANG_ RAY_'

# These would lead to another Ray cluster, or are only for launch.sh and node.sh.
readonly ENVIRONMENT_NEVER=' RAY_ADDRESS RAY_TMPDIR RAY_JOB_ID RAY_AUTH_TOKEN VERLJOB_TOKEN VERLJOB_MOVED VERLJOB_DRY_RUN '

# Sets CONTAINER_ENV, where a name that is not set here must also be unset if the image sets it, SECRET_NAMES, and
# CONTAINER_UNSET: exported names that the container must not get if its processes inherit this environment.
environment::collect() {
    local name
    for name in ${TABLE[unset]:-}; do
        [[ $name =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]] || fail 64 "a table of the platform or profile unsets '$name', which is not a variable name" "write unset=NAME NAME"
    done
    if runtime::limits devices; then
        for name in ${TABLE[unset]:-}; do unset "$name"; done
    else
        environment::_add_missing_mask
    fi
    # For users who run `ray status` or `ray job` in the container; Ray before 2.52 does not read them.
    export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$VERLJOB_TOKEN_FILE
    secrets::find
    CONTAINER_ENV=() CONTAINER_UNSET=()
    while IFS= read -r name; do
        if [[ " ${SECRET_NAMES[*]-} $ENVIRONMENT_NEVER " == *" $name "* ]]; then
            CONTAINER_UNSET+=("$name")
        elif environment::is_passed "$name"; then
            CONTAINER_ENV+=("$name")
        elif [[ $name =~ ^(SLURM|SBATCH|SRUN|PMI|VERLJOB_) ]]; then
            CONTAINER_UNSET+=("$name")
        fi
    done < <(compgen -e | sort)
    # shellcheck disable=SC2206 # a list of names
    CONTAINER_ENV+=(${TABLE[unset]:-})
}

# If all devices of the node are visible, only a mask separates the jobs, from which verl_node derives its own. Slurm sets one; if a
# prolog or the batch script removed it, every job would use the node's first GPUs.
environment::_add_missing_mask() {
    [[ -z ${CUDA_VISIBLE_DEVICES:-}${HIP_VISIBLE_DEVICES:-}${ROCR_VISIBLE_DEVICES:-}${GPU_DEVICE_ORDINAL:-} ]] || return 0
    ((${#CONTAINER_GPUS[@]})) || return 0
    CUDA_VISIBLE_DEVICES=$(IFS=,; printf '%s' "${CONTAINER_GPUS[*]}")
    export CUDA_VISIBLE_DEVICES
}

# usage: environment::is_passed NAME
environment::is_passed() {
    local prefix
    local -r added=${VERLJOB_ENV:-}
    [[ $ENVIRONMENT_NEVER != *" $1 "* ]] || return 1
    [[ "${ENVIRONMENT_NAMES//$'\n'/ } ${added//,/ } ${TABLE_ENV[*]-} " != *" $1 "* ]] || return 0
    for prefix in $ENVIRONMENT_PREFIXES; do
        [[ $1 != "$prefix"* ]] || return 0
    done
    return 1
}
