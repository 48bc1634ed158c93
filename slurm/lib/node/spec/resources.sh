# shellcheck shell=bash disable=SC2034 # its variables are read by the runtime
# Resource limits of the container, which dockerd runs outside Slurm's cgroup.
# Sets: CONTAINER_CPUSET, CONTAINER_MEMORY, VERLJOB_CPUS, VERLJOB_MEMORY_BYTES.

# usage: resources::collect [ROOT]
# Sets CONTAINER_CPUSET (empty: all) and CONTAINER_MEMORY (bytes, empty: no limit); exports VERLJOB_CPUS and
# VERLJOB_MEMORY_BYTES. ROOT is a prefix of /sys and /proc, for tests.
resources::collect() {
    resources::_read_cpuset "${1:-}"
    resources::_read_memory "${1:-}"
    export VERLJOB_CPUS=${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-$(nproc)}}
    export VERLJOB_MEMORY_BYTES=${CONTAINER_MEMORY:-$(resources::_print_installed "${1:-}")}
}

# Reads the step's affinity. If Slurm does not confine it (task/none), that is every CPU.
resources::_read_cpuset() {
    local key value
    CONTAINER_CPUSET=''
    [[ -z ${VERLJOB_DRY_RUN:-} ]] || { CONTAINER_CPUSET='<CPUs of the step>'; return; }
    while IFS=$':\t' read -r key value; do
        [[ $key != Cpus_allowed_list ]] || CONTAINER_CPUSET=${value//[[:space:]]/}
    done < "$1/proc/self/status"
}

# Reads the memory that Slurm granted; if it does not account for memory, the limit of the step's cgroup.
resources::_read_memory() {
    CONTAINER_MEMORY=''
    if ((${SLURM_MEM_PER_NODE:-0} > 0)); then
        CONTAINER_MEMORY=$((SLURM_MEM_PER_NODE * 1024 * 1024))
    elif ((${SLURM_MEM_PER_CPU:-0} > 0)); then
        CONTAINER_MEMORY=$((SLURM_MEM_PER_CPU * ${SLURM_CPUS_ON_NODE:-1} * 1024 * 1024))
    else
        resources::_read_cgroup_memory "$1"
    fi
}

# usage: resources::_read_cgroup_memory ROOT
# Takes the smallest limit from this process's cgroup up to the root, for either version of cgroups.
resources::_read_cgroup_memory() {
    local id controllers path mount file limit
    while IFS=: read -r id controllers path; do
        case $id:$controllers in
            0:) mount=$1/sys/fs/cgroup file=memory.max ;;
            *memory*) mount=$1/sys/fs/cgroup/memory file=memory.limit_in_bytes ;;
            *) continue ;;
        esac
        while [[ -n $path && $path != / ]]; do
            limit=''
            [[ ! -r $mount$path/$file ]] || limit=$(< "$mount$path/$file")
            if [[ $limit =~ ^[0-9]+$ ]] && ((limit < 1 << 60)); then # version 1 writes "none" as a huge number
                [[ -n $CONTAINER_MEMORY ]] && ((CONTAINER_MEMORY <= limit)) || CONTAINER_MEMORY=$limit
            fi
            path=${path%/*}
        done
    done < "$1/proc/self/cgroup"
}

resources::_print_installed() {
    local key value
    while read -r key value _; do
        [[ $key != MemTotal: || ! $value =~ ^[0-9]+$ ]] || printf '%s\n' $((value * 1024))
    done < "$1/proc/meminfo"
}
