# shellcheck shell=bash disable=SC2034 # its variables are read by the runtime
# The devices of the step, by physical identity. The container sees only these, so it needs no GPU mask.
# Sets: ACCOUNT_GIDS, CONTAINER_DEVICES, CONTAINER_GPUS, CONTAINER_GROUPS.

# usage: devices::collect [ROOT]
# Sets CONTAINER_GPUS (identities), CONTAINER_DEVICES (paths), ACCOUNT_GIDS and CONTAINER_GROUPS. ROOT is a prefix of /sys
# and /proc, for tests.
devices::collect() {
    CONTAINER_GPUS=() CONTAINER_DEVICES=() CONTAINER_GROUPS=()
    devices::_add_gpus "${1:-}"
    devices::_add_required
    devices::_add_optional
    devices::_read_groups
}

devices::_add_gpus() {
    local -r ids=${SLURM_STEP_GPUS:-${SLURM_JOB_GPUS:-}} count=${SLURM_GPUS_ON_NODE:-0}
    local id named=0
    [[ -n $ids || $count != 0 ]] || return 0
    [[ $ids =~ ^[0-9]+(,[0-9]+)*$ ]] || fail 69 \
        "Slurm gave $HOST $count GPUs without their numbers (SLURM_STEP_GPUS='$ids')" "gres.conf needs File= for its GPUs"
    for id in ${ids//,/ }; do
        "devices::_gpu_${TABLE[gpus]}" "$id" "$1"
        named=$((named + 1))
    done
    [[ $count == 0 || $count == "$named" ]] \
        || fail 69 "Slurm counts $count GPUs on $HOST and names $named ($ids)" "give the job whole GPUs"
}

# usage: devices::_gpu_nvidia MINOR ROOT
# Looks up the UUID of /dev/nvidia<minor>, by which Slurm counts, in the driver's files.
devices::_gpu_nvidia() {
    local file key value uuid minor
    for file in "$2"/proc/driver/nvidia/gpus/*/information; do
        [[ -r $file ]] || continue
        uuid='' minor=''
        while IFS=: read -r key value; do
            case $key in
                'GPU UUID'*) uuid=${value//[[:space:]]/} ;;
                'Device Minor'*) minor=${value//[[:space:]]/} ;;
            esac
        done < "$file"
        [[ $minor != "$1" ]] || { CONTAINER_GPUS+=("$uuid"); return; }
    done
    devices::_fail_missing "GPU $1 of the job" "/proc/driver/nvidia/gpus names no card with that minor number"
    CONTAINER_GPUS+=("<UUID of GPU $1>")
}

# usage: devices::_gpu_amd NUMBER ROOT
# Slurm's number is the render node's (File=/dev/dri/renderD128 in gres.conf), or the card's index among the AMD ones.
devices::_gpu_amd() {
    [[ $1 =~ ^(0|[1-9][0-9]{0,4})$ ]] || fail 69 "Slurm gave $HOST a GPU '$1'" "gres.conf numbers GPUs from 0"
    local number=$1 file minor
    local -a nodes=()
    for file in "$2"/sys/class/drm/renderD*/device/vendor; do
        [[ -r $file && $(< "$file") == 0x1002 ]] || continue # other vendors' cards have render nodes too
        minor=${file#*/renderD} minor=${minor%%/*}
        [[ ! $minor =~ ^[1-9][0-9]*$ ]] || nodes[minor]=1
    done
    local -ra minors=(${nodes[@]+"${!nodes[@]}"}) # in ascending order
    ((number >= 128)) || number=${minors[number]:-}
    if [[ -z $number || -z ${nodes[number]:-} ]]; then
        devices::_fail_missing "GPU $1 of the job" "the AMD render nodes are ${minors[*]:-none}"
        CONTAINER_DEVICES+=("/dev/dri/<render node of GPU $1>")
    else
        CONTAINER_DEVICES+=("/dev/dri/renderD$number")
    fi
}

# usage: devices::_gpu_file NUMBER
devices::_gpu_file() {
    [[ -e ${TABLE[gpu_file]}$1 ]] || devices::_fail_missing "GPU $1 of the job" "no such device: ${TABLE[gpu_file]}$1"
    CONTAINER_DEVICES+=("${TABLE[gpu_file]}$1")
}

# usage: devices::_fail_missing DEVICE SEEN
# Returns in a dry run, which describes nodes from another machine: the caller then adds a placeholder.
devices::_fail_missing() {
    [[ -n ${VERLJOB_DRY_RUN:-} ]] || fail 69 "$1 is not on $HOST: $2" \
        "check the platform ($VERLJOB_PLATFORM), the driver and gres.conf, or exclude the node: sbatch --exclude=$HOST"
}

devices::_add_required() {
    local path
    for path in ${TABLE[devices]:-}; do
        [[ -e $path ]] || devices::_fail_missing "$path" "no such device"
        CONTAINER_DEVICES+=("$path")
    done
}

devices::_add_optional() {
    local path
    for path in ${TABLE[devices_optional]:-}; do
        if [[ -e $path || -n ${VERLJOB_DRY_RUN:-} ]]; then
            CONTAINER_DEVICES+=("$path")
        else
            log::warn "no $path on $HOST: left out"
        fi
    done
}

# Reads the account's groups, its own first, and those of the devices.
devices::_read_groups() {
    local path gid
    local -a gids=()
    read -r -a ACCOUNT_GIDS <<< "$(id -G)"
    for gid in "${ACCOUNT_GIDS[@]}"; do gids[gid]=1; done
    for path in ${CONTAINER_DEVICES[@]+"${CONTAINER_DEVICES[@]}"}; do
        # For a folder also those of the devices in it. A placeholder of a dry run has no group.
        for gid in $(stat -c %g -- "$path" "$path"/* 2> /dev/null); do gids[gid]=1; done
    done
    unset "gids[${ACCOUNT_GIDS[0]}]" 'gids[0]'
    CONTAINER_GROUPS=(${gids[@]+"${!gids[@]}"})
}
