# shellcheck shell=bash
# Finds the processes that hold memory of the job's GPUs, from the drivers on the host.
# Sets: HOLDERS.

declare -ga HOLDERS=()
# From here on somebody else's memory on a GPU keeps vLLM from starting; a driver's own share is smaller.
readonly HOLDERS_LEAST_MIB=2048

# usage: gpu_users::nvidia "UUID PID MIB"
gpu_users::nvidia() {
    local uuid pid mib
    read -r uuid pid mib <<< "$1"
    [[ " ${CONTAINER_GPUS[*]-} " == *" $uuid "* ]] && [[ $mib =~ ^[0-9]+$ ]] && ((mib >= HOLDERS_LEAST_MIB)) || return 0
    HOLDERS+=("$uuid $mib MiB by $(gpu_users::who "$pid")")
}

# The driver tells of each process's memory on each card by the card's gpu_id (kernel, drivers/gpu/drm/amd/amdkfd).
gpu_users::amd() {
    local file key card mib pid
    local -A minors=()
    for file in "${HOSTCHECK_ROOT:-}"/sys/class/kfd/kfd/topology/nodes/*/gpu_id; do
        [[ -r $file ]] || return 0
        while read -r key card; do [[ $key != drm_render_minor ]] || minors[$(< "$file")]=$card; done < "${file%/*}/properties"
    done
    for file in "${HOSTCHECK_ROOT:-}"/sys/class/kfd/kfd/proc/*/vram_*; do
        [[ -r $file ]] || continue
        card=/dev/dri/renderD${minors[${file##*_}]:-none} mib=$(< "$file") pid=${file%/*}
        [[ " ${CONTAINER_DEVICES[*]-} " == *" $card "* ]] || continue
        [[ $mib =~ ^[0-9]+$ ]] || continue
        mib=$((mib >> 20))
        ((mib < HOLDERS_LEAST_MIB)) || HOLDERS+=("$card $mib MiB by $(gpu_users::who "${pid##*/}")")
    done
}

# usage: gpu_users::who PID
# Prints its number, name, account and Slurm job, as far as they can be told.
gpu_users::who() {
    local -r folder=${HOSTCHECK_ROOT:-}/proc/$1
    local name=process owner=unknown cgroup=''
    [[ ! -r $folder/comm ]] || name=$(< "$folder/comm")
    [[ ! -e $folder ]] || owner=$(stat -c %U -- "$folder")
    [[ ! -r $folder/cgroup ]] || cgroup=$(< "$folder/cgroup")
    printf '%s (%s) of %s' "$1" "$name" "$owner"
    [[ ! $cgroup =~ /job_([0-9]+) ]] || printf ', job %s' "${BASH_REMATCH[1]}"
}
