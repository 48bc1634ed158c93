# shellcheck shell=bash
# Checks of the host for what a container cannot see: memory in use on the GPUs, kernel messages about them, Ray processes of
# earlier jobs. verl_node adds them to its own (verl_node/checks/background.py).
# Sets: GPU_USERS, HOSTCHECK_ANSWERS, HOSTCHECK_BEGAN, HOSTCHECK_KERNEL_LINE.

readonly HOSTCHECK_TIMEOUT_S=3
# Of NVIDIA's "XID Errors" catalogue, those that require a reset, a reboot or a technician.
readonly HOSTCHECK_XIDS=' 48 54 64 74 79 95 109 110 119 120 136 140 143 151 155 156 158 168 '
readonly HOSTCHECK_DAY_S=86400
# This much memory of another process prevents the start of vLLM; a driver's own share is smaller.
readonly GPU_USERS_MIN_MIB=2048
readonly HOSTCHECK_SLURM_MARGIN_S=30 # of SlurmdTimeout above VERLJOB_SILENCE_S

declare -ga GPU_USERS=()

# Queries driver and kernel in the background, while the node pulls its image.
host_check::start() {
    HOSTCHECK_BEGAN=$SECONDS
    if [[ -e ${HOSTCHECK_ROOT:-}/proc/driver/nvidia/version || -d ${HOSTCHECK_ROOT:-}/sys/class/kfd ]]; then
        exec {HOSTCHECK_ANSWERS}< <(host_check::_query 2> /dev/null 3>&-)
    else
        exec {HOSTCHECK_ANSWERS}< /dev/null
    fi
}

host_check::_query() {
    local line
    if command -v nvidia-smi > /dev/null; then
        timeout -s KILL "$HOSTCHECK_TIMEOUT_S" nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits \
            | while IFS= read -r line; do printf 'app %s\n' "${line//,/}"; done || : # verl_node checks the driver
    fi
    timeout -s KILL "$HOSTCHECK_TIMEOUT_S" dmesg --level=emerg,alert,crit,err,warn \
        | while IFS= read -r line; do
            [[ $line != *'NVRM: Xid'* && $line != *amdgpu*uncorrect* ]] || printf 'log %s\n' "$line"
        done || : # a site may hide the kernel's log from its users
}

# usage: host_check::write_results FILE
# Writes one line per check: name, severity, seen, expected and fix, separated by tabs.
host_check::write_results() {
    local kind text
    local -r until=$((HOSTCHECK_BEGAN + HOSTCHECK_TIMEOUT_S))
    GPU_USERS=() HOSTCHECK_KERNEL_LINE=''
    while IFS=' ' read -r -t "$((until > SECONDS ? until - SECONDS : 1))" -u "$HOSTCHECK_ANSWERS" kind text; do
        case $kind in
            app) host_check::_add_nvidia_user "$text" ;;
            log) host_check::_read_kernel_line "$text" ;;
        esac
    done
    exec {HOSTCHECK_ANSWERS}<&-
    host_check::_add_amd_users
    {
        host_check::_gpus_are_idle
        host_check::_gpus_said_nothing
        host_check::_no_stale_ray
        host_check::_slurm_waits_longer
        host_check::_print image_is_here ok "${IMAGE_ID:-}"
    } > "$1"
}

# usage: host_check::_print NAME [SEVERITY SEEN EXPECTED FIX]
host_check::_print() {
    printf 'host.%s\t%s\t%s\t%s\t%s\n' "$1" "${2:-ok}" "${3-}" "${4-}" "${5-}"
}

# usage: host_check::_add_nvidia_user "UUID PID MIB"
host_check::_add_nvidia_user() {
    local uuid pid mib
    read -r uuid pid mib <<< "$1"
    [[ " ${CONTAINER_GPUS[*]-} " == *" $uuid "* ]] && [[ $mib =~ ^[0-9]+$ ]] && ((mib >= GPU_USERS_MIN_MIB)) || return 0
    GPU_USERS+=("$uuid $mib MiB by $(host_check::_describe_process "$pid")")
}

# Reads each process's memory on each card from the kernel, by the card's gpu_id (drivers/gpu/drm/amd/amdkfd).
host_check::_add_amd_users() {
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
        ((mib < GPU_USERS_MIN_MIB)) || GPU_USERS+=("$card $mib MiB by $(host_check::_describe_process "${pid##*/}")")
    done
}

# usage: host_check::_describe_process PID
# Prints its number, name, account and Slurm job, as far as they are readable.
host_check::_describe_process() {
    local -r folder=${HOSTCHECK_ROOT:-}/proc/$1
    local name=process owner=unknown cgroup=''
    [[ ! -r $folder/comm ]] || name=$(< "$folder/comm")
    [[ ! -e $folder ]] || owner=$(stat -c %U -- "$folder")
    [[ ! -r $folder/cgroup ]] || cgroup=$(< "$folder/cgroup")
    printf '%s (%s) of %s' "$1" "$name" "$owner"
    [[ ! $cgroup =~ /job_([0-9]+) ]] || printf ', job %s' "${BASH_REMATCH[1]}"
}

host_check::_gpus_are_idle() {
    local users
    ((${#GPU_USERS[@]})) || { host_check::_print gpus_are_idle; return; }
    printf -v users '%s; ' "${GPU_USERS[@]}"
    host_check::_print gpus_are_idle fail "In use before the job has begun: ${users%; }." "no process on the job's GPUs" \
        "End it if it is yours (kill, docker rm), else exclude the node: sbatch --exclude=$HOST."
}

# usage: host_check::_read_kernel_line LINE
# Keeps the last kernel message of the last day that means that a GPU needs a reset.
host_check::_read_kernel_line() {
    local uptime now
    read -r uptime _ < "${HOSTCHECK_ROOT:-}/proc/uptime"
    now=${uptime%.*}
    [[ $now =~ ^[0-9]+$ && $1 =~ ^\[\ *([0-9]+)\. ]] && ((now - BASH_REMATCH[1] < HOSTCHECK_DAY_S)) || return 0
    if [[ $1 =~ Xid\ \([^\)]*\):\ ([0-9]+) ]]; then
        [[ $HOSTCHECK_XIDS == *" ${BASH_REMATCH[1]} "* ]] || return 0
    fi
    HOSTCHECK_KERNEL_LINE=$1
}

host_check::_gpus_said_nothing() {
    [[ -n $HOSTCHECK_KERNEL_LINE ]] || { host_check::_print gpus_said_nothing; return; }
    host_check::_print gpus_said_nothing warn "The kernel says: ${HOSTCHECK_KERNEL_LINE//$'\t'/ }" \
        'no fatal Xid or uncorrectable error in a day' "Have the GPU reset; exclude the node meanwhile: sbatch --exclude=$HOST."
}

# Finds Ray processes of this account outside of any running job, which use ports and memory.
host_check::_no_stale_ray() {
    local folder name job stale=''
    for folder in "${HOSTCHECK_ROOT:-}"/proc/[0-9]*; do
        [[ -O $folder && -r $folder/comm ]] || continue
        { read -r name < "$folder/comm"; } 2> /dev/null || continue
        [[ $name == raylet || $name == gcs_server ]] || continue
        job=$(host_check::_job_of "$folder") || continue # it has just ended
        [[ -z $job ]] || container::job_has_ended "$job" || continue
        stale+="$(host_check::_describe_process "${folder##*/}"), of ${job:+the ended job }${job:-no job}; "
    done
    [[ -n $stale ]] || { host_check::_print no_stale_ray; return; }
    host_check::_print no_stale_ray warn "${stale%; }." "no Ray of yours but the job's" "End it: kill those processes on $HOST."
}

# For `doctor`, on the first node: Slurm ends a job with a silent node after SlurmdTimeout.
host_check::_slurm_waits_longer() {
    local config='' minimum
    [[ -n ${VERLJOB_DOCTOR:-} && ${VERLJOB_SILENCE_S:-} =~ ^[1-9][0-9]{0,4}$ ]] || return 0
    minimum=$((VERLJOB_SILENCE_S + HOSTCHECK_SLURM_MARGIN_S))
    [[ $SLURM_NODEID != 0 ]] || config=$(timeout -s KILL "$HOSTCHECK_TIMEOUT_S" scontrol show config) \
        || log::warn "scontrol does not show its configuration: SlurmdTimeout is not checked"
    if [[ ! $config =~ SlurmdTimeout[[:space:]]*=[[:space:]]*([1-9][0-9]{0,5})' sec' ]] || ((BASH_REMATCH[1] >= minimum)); then
        host_check::_print slurm_waits_longer # also for 0 sec: Slurm waits forever
        return
    fi
    host_check::_print slurm_waits_longer warn \
        "Slurm marks a silent node DOWN after ${BASH_REMATCH[1]} s (SlurmdTimeout) and ends its jobs." \
        "at least $minimum s, VERLJOB_SILENCE_S and $HOSTCHECK_SLURM_MARGIN_S" \
        "Ask the site for a longer SlurmdTimeout, or accept that Slurm decides (docs/faults.md)."
}

# usage: host_check::_job_of PROC-FOLDER
# Prints the Slurm job in a process's environment.
host_check::_job_of() {
    local variable
    while IFS= read -r -d '' variable; do
        [[ $variable != SLURM_JOB_ID=* ]] || printf '%s' "${variable#*=}"
    done 2> /dev/null < "$1/environ"
}
