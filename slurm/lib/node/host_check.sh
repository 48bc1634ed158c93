# shellcheck shell=bash
# Checks of the host, which a container with its own processes cannot make: who holds a GPU, what the kernel said of it,
# whose Ray is still there. verl_node puts them beside its own (verl_node/checks/background.py).
# Sets: HOLDERS, HOSTCHECK_ANSWERS, HOSTCHECK_BEGAN, HOSTCHECK_LOG.

readonly HOSTCHECK_LIMIT_S=3
# NVIDIA's "XID Errors" catalogue: those after which a GPU wants a reset, a reboot or a technician.
readonly HOSTCHECK_XIDS=' 48 54 64 74 79 95 109 110 119 120 136 140 143 151 155 156 158 168 '
readonly HOSTCHECK_DAY_S=86400

# Asks the driver and the kernel in the background, while the node brings its image; host_check::judge reads the answers.
host_check::begin() {
    HOSTCHECK_BEGAN=$SECONDS
    if [[ -e ${HOSTCHECK_ROOT:-}/proc/driver/nvidia/version || -d ${HOSTCHECK_ROOT:-}/sys/class/kfd ]]; then
        exec {HOSTCHECK_ANSWERS}< <(host_check::_ask 2> /dev/null 3>&-)
    else
        exec {HOSTCHECK_ANSWERS}< /dev/null
    fi
}

host_check::_ask() {
    local line
    if command -v nvidia-smi > /dev/null; then
        timeout -s KILL "$HOSTCHECK_LIMIT_S" nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits \
            | while IFS= read -r line; do printf 'app %s\n' "${line//,/}"; done || : # the container's own check tells
    fi
    timeout -s KILL "$HOSTCHECK_LIMIT_S" dmesg --level=emerg,alert,crit,err,warn \
        | while IFS= read -r line; do
            [[ $line != *'NVRM: Xid'* && $line != *amdgpu*uncorrect* ]] || printf 'log %s\n' "$line"
        done || : # a site may keep the kernel's log from its users
}

# usage: host_check::judge FILE
# Writes a line a check into FILE: name, severity, seen, wanted and fix between tabs.
host_check::judge() {
    local kind words
    local -r until=$((HOSTCHECK_BEGAN + HOSTCHECK_LIMIT_S))
    HOLDERS=() HOSTCHECK_LOG=''
    while IFS=' ' read -r -t "$((until > SECONDS ? until - SECONDS : 1))" -u "$HOSTCHECK_ANSWERS" kind words; do
        case $kind in
            app) gpu_users::nvidia "$words" ;;
            log) host_check::_log "$words" ;;
        esac
    done
    exec {HOSTCHECK_ANSWERS}<&-
    gpu_users::amd
    {
        host_check::_gpus_are_idle
        host_check::_gpus_said_nothing
        host_check::_no_stale_ray
        host_check::_slurm_waits_longer
        printf 'host.image_is_here\tok\t%s\t\t\n' "${IMAGE_ID:-}"
    } > "$1"
}

host_check::_gpus_are_idle() {
    local held
    printf -v held '%s; ' ${HOLDERS[@]+"${HOLDERS[@]}"}
    if ((${#HOLDERS[@]})); then
        printf 'host.gpus_are_idle\tfail\tHeld before the job has begun: %s.\tno process on the job'\''s GPUs\t%s\n' "${held%; }" \
            "End it if it is yours (kill, docker rm), else exclude the node: sbatch --exclude=$HOST."
    else
        printf 'host.gpus_are_idle\tok\t\t\t\n'
    fi
}

# usage: host_check::_log LINE
# Keeps the last line of the kernel's of the last day that tells of a GPU in need of a reset.
host_check::_log() {
    local uptime now
    read -r uptime _ < "${HOSTCHECK_ROOT:-}/proc/uptime"
    now=${uptime%.*}
    [[ $now =~ ^[0-9]+$ && $1 =~ ^\[\ *([0-9]+)\. ]] && ((now - BASH_REMATCH[1] < HOSTCHECK_DAY_S)) || return 0
    if [[ $1 =~ Xid\ \([^\)]*\):\ ([0-9]+) ]]; then
        [[ $HOSTCHECK_XIDS == *" ${BASH_REMATCH[1]} "* ]] || return 0
    fi
    HOSTCHECK_LOG=$1
}

host_check::_gpus_said_nothing() {
    if [[ -n $HOSTCHECK_LOG ]]; then
        printf 'host.gpus_said_nothing\twarn\tThe kernel says: %s\tno fatal Xid nor uncorrectable error in a day\t%s\n' \
            "${HOSTCHECK_LOG//$'\t'/ }" "Have the GPU reset; exclude the node meanwhile: sbatch --exclude=$HOST."
    else
        printf 'host.gpus_said_nothing\tok\t\t\t\n'
    fi
}

# A Ray of this account that belongs to no job, or to one that Slurm no longer knows, takes ports and memory.
host_check::_no_stale_ray() {
    local folder name job found=''
    for folder in "${HOSTCHECK_ROOT:-}"/proc/[0-9]*; do
        [[ -O $folder && -r $folder/comm ]] || continue
        { read -r name < "$folder/comm"; } 2> /dev/null || continue
        [[ $name == raylet || $name == gcs_server ]] || continue
        job=$(host_check::_job_of "$folder") || continue # it has just ended
        [[ -z $job ]] || stale_containers::_ended "$job" || continue
        found+="$(gpu_users::who "${folder##*/}"), of ${job:+the ended job }${job:-no job}; "
    done
    if [[ -n $found ]]; then
        printf 'host.no_stale_ray\twarn\t%s.\tno Ray of yours but the job'\''s\tEnd it: kill those numbers on %s.\n' "${found%; }" "$HOST"
    else
        printf 'host.no_stale_ray\tok\t\t\t\n'
    fi
}

# For the doctor: below that Slurm ends a job whose node is silent before VERLJOB_SILENCE_S does. The first node asks for all.
readonly HOSTCHECK_SLURM_MORE_S=30

host_check::_slurm_waits_longer() {
    local config='' wanted
    [[ -n ${VERLJOB_DOCTOR:-} && ${VERLJOB_SILENCE_S:-} =~ ^[1-9][0-9]{0,4}$ ]] || return 0
    wanted=$((VERLJOB_SILENCE_S + HOSTCHECK_SLURM_MORE_S))
    [[ $SLURM_NODEID != 0 ]] || config=$(timeout -s KILL "$HOSTCHECK_LIMIT_S" scontrol show config) \
        || log::warn "scontrol does not show its configuration: whether Slurm waits for a silent node is not known"
    # 0 sec: Slurm waits without end
    if [[ $config =~ SlurmdTimeout[[:space:]]*=[[:space:]]*([1-9][0-9]{0,5})' sec' ]] && ((BASH_REMATCH[1] < wanted)); then
        printf 'host.slurm_waits_longer\twarn\tSlurm gives a silent node up after %s s (SlurmdTimeout), and its jobs with it.\tat least %s s, VERLJOB_SILENCE_S and %s\t%s\n' \
            "${BASH_REMATCH[1]}" "$wanted" "$HOSTCHECK_SLURM_MORE_S" "Ask the site for a longer SlurmdTimeout, or know that Slurm decides (docs/faults.md)."
    else
        printf 'host.slurm_waits_longer\tok\t\t\t\n'
    fi
}

# usage: host_check::_job_of FOLDER
# Prints the Slurm job in a process's environment.
host_check::_job_of() {
    local word
    while IFS= read -r -d '' word; do
        [[ $word != SLURM_JOB_ID=* ]] || printf '%s' "${word#*=}"
    done 2> /dev/null < "$1/environ"
}
