# shellcheck shell=bash disable=SC2034 # what it sets is read by the runtime
# The devices of the step, by physical identity: the container sees these and no others, so it needs no mask of GPUs.
# Sets: CONTAINER_DEVICES, CONTAINER_GPUS, CONTAINER_GROUPS.

# usage: devices::collect [ROOT]
# Sets CONTAINER_GPUS (identities for the runtime), CONTAINER_DEVICES (paths) and CONTAINER_GROUPS (numbers).
# ROOT goes before /sys and /proc, for tests.
devices::collect() {
    CONTAINER_GPUS=() CONTAINER_DEVICES=() CONTAINER_GROUPS=()
    devices::_gpus "${1:-}"
    devices::_required
    devices::_optional
    devices::_groups
}

devices::_gpus() {
    local -r ids=${SLURM_STEP_GPUS:-${SLURM_JOB_GPUS:-}} count=${SLURM_GPUS_ON_NODE:-0}
    local id found=0
    [[ -n $ids || $count != 0 ]] || return 0
    [[ $ids =~ ^[0-9]+(,[0-9]+)*$ ]] || fail 69 \
        "Slurm gave $HOST $count GPUs without telling which (SLURM_STEP_GPUS='$ids')" "gres.conf needs File= for its GPUs"
    for id in ${ids//,/ }; do
        "devices::_gpu_${TABLE[gpus]}" "$id" "$1"
        found=$((found + 1))
    done
    [[ $count == 0 || $count == "$found" ]] \
        || fail 69 "Slurm counts $count GPUs on $HOST and names $found ($ids)" "give the job whole GPUs"
}

# usage: devices::_gpu_nvidia MINOR ROOT
# The driver tells each card's UUID and the number of its /dev/nvidia<minor>, which is what Slurm counts by.
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
    devices::_missing "GPU $1 of the job" "/proc/driver/nvidia/gpus names no card with that minor number"
    CONTAINER_GPUS+=("<UUID of GPU $1>")
}

# usage: devices::_gpu_amd NUMBER ROOT
# Slurm's number is that of the render node (gres.conf with File=/dev/dri/renderD128), or the card's place in their order.
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
        devices::_missing "GPU $1 of the job" "AMD render nodes here: ${minors[*]:-none}"
        CONTAINER_DEVICES+=("/dev/dri/<render node of GPU $1>")
    else
        CONTAINER_DEVICES+=("/dev/dri/renderD$number")
    fi
}

# usage: devices::_gpu_file NUMBER
devices::_gpu_file() {
    [[ -e ${TABLE[gpu_file]}$1 ]] || devices::_missing "GPU $1 of the job" "there is no ${TABLE[gpu_file]}$1"
    CONTAINER_DEVICES+=("${TABLE[gpu_file]}$1")
}

# usage: devices::_missing WHAT SEEN
# A dry run describes nodes from elsewhere: there the caller goes on with what the node would have.
devices::_missing() {
    [[ -n ${VERLJOB_DRY_RUN:-} ]] || fail 69 "$1 is not on $HOST: $2" \
        "is $VERLJOB_PLATFORM the right platform, is the driver loaded, does gres.conf fit? exclude the node: sbatch --exclude=$HOST"
}

devices::_required() {
    local path
    for path in ${TABLE[devices]:-}; do
        [[ -e $path ]] || devices::_missing "$path" "no such device"
        CONTAINER_DEVICES+=("$path")
    done
}

devices::_optional() {
    local path
    for path in ${TABLE[devices_optional]:-}; do
        if [[ -e $path || -n ${VERLJOB_DRY_RUN:-} ]]; then
            CONTAINER_DEVICES+=("$path")
        else
            log::warn "no $path on $HOST: left out"
        fi
    done
}

# The account's own groups, and those that own the devices: their numbers differ between sites and from the image's.
devices::_groups() {
    local path gid
    local -a gids=()
    account::gids
    for gid in "${ACCOUNT_GIDS[@]}"; do gids[gid]=1; done
    for path in ${CONTAINER_DEVICES[@]+"${CONTAINER_DEVICES[@]}"}; do
        # A folder stands for the devices in it. A placeholder of a dry run has no group.
        for gid in $(stat -c %g -- "$path" "$path"/* 2> /dev/null); do gids[gid]=1; done
    done
    unset "gids[${ACCOUNT_GIDS[0]}]" 'gids[0]'
    CONTAINER_GROUPS=(${gids[@]+"${!gids[@]}"})
}
