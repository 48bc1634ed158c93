# shellcheck shell=bash disable=SC2034 # its variables are read by launch.sh
# Reads the allocation on its first node. JOB_RECORD is the job's `scontrol show job`.
# Sets: HEAD_ADDRESS, JOB_END, JOB_LIMIT, NODES, NODE_CPUS, SLURM_GPUS_ON_NODE, SLURM_JOB_CPUS_PER_NODE,
#   SLURM_JOB_END_TIME, SLURM_JOB_ID, SLURM_JOB_NAME, SLURM_JOB_NODELIST, SLURM_STEP_GPUS, SLURM_SUBMIT_DIR.

# Sets NODES (in Slurm's order), NODE_CPUS, JOB_END and JOB_LIMIT (text of scontrol).
allocation::read() {
    [[ -n ${SLURM_JOB_ID:-} ]] || fail 64 "this is not inside an allocation" \
        "sbatch $VERLJOB_HOME/slurm/launch.sh …, or VERLJOB_DRY_RUN=1 to see what it would do"
    [[ -z ${SLURM_HET_SIZE:-} ]] || fail 64 "a heterogeneous job of $SLURM_HET_SIZE components" \
        "ask for equal nodes, in one component"
    mapfile -t NODES < <(scontrol show hostnames "${SLURM_JOB_NODELIST:-}")
    ((${#NODES[@]} > 0)) || fail 64 "scontrol lists no node for SLURM_JOB_NODELIST=${SLURM_JOB_NODELIST:-}" "check that Slurm's client works on $HOST"
    allocation::_read_cpus
    JOB_LIMIT=$(allocation::field TimeLimit) JOB_END=$(allocation::field EndTime)
    SLURM_JOB_END_TIME=${SLURM_JOB_END_TIME:-$(allocation::end_time)} # Slurm sets it since 23.02
    [[ -z $SLURM_JOB_END_TIME ]] || export SLURM_JOB_END_TIME
}

# Prints when the time limit ends the job, in seconds since the epoch; nothing without a limit.
allocation::end_time() {
    local end
    end=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%e) || return 0
    [[ ! $end =~ ^[0-9]{4}- ]] || date -d "$end" +%s
}

# usage: allocation::field NAME
# Prints the value of NAME= in the job's record, where Slurm writes it: between the user's words that may have the same form
# (name and WCKey before, command after).
allocation::field() {
    local record=${JOB_RECORD#*" JobName=${SLURM_JOB_NAME:-}"$'\n   UserId='}
    record=${record#*$'\n   JobState='}
    record=${record%%$'\n   Command='*}
    [[ $record =~ [[:space:]]$1=([^[:space:]]*) ]] || return 0
    printf '%s\n' "${BASH_REMATCH[1]}"
}

# Sets NODE_CPUS to the smallest node's count, since all tasks have one size: "16(x2),8" gives 8.
allocation::_read_cpus() {
    local part
    local -r counts=${SLURM_JOB_CPUS_PER_NODE:-1}
    NODE_CPUS=''
    for part in ${counts//,/ }; do
        part=${part%%(*}
        [[ $part =~ ^[1-9][0-9]{0,8}$ ]] || fail 64 "SLURM_JOB_CPUS_PER_NODE is '$counts'" "start launch.sh by sbatch or salloc, which set it"
        [[ -n $NODE_CPUS ]] && ((NODE_CPUS <= part)) || NODE_CPUS=$part
    done
}

# usage: allocation::move_to_head ARGUMENT...
# Under salloc, on the submit host: replaces the script by an srun of it on the first node.
allocation::move_to_head() {
    local -r moved=${VERLJOB_MOVED:-}
    unset VERLJOB_MOVED
    [[ ${SLURMD_NODENAME:-} != "${NODES[0]}" ]] || return 0
    [[ -z $moved ]] || fail 64 "this is ${SLURMD_NODENAME:-$HOSTNAME}, not the first node ${NODES[0]} of the allocation" \
        "use sbatch, which starts there"
    log::note "going to ${NODES[0]}, the first node of job $SLURM_JOB_ID"
    VERLJOB_MOVED=1 exec srun --overlap --mem=0 --nodes=1 --ntasks=1 --nodelist="${NODES[0]}" --cpus-per-task=1 \
        --cpu-bind=none --export=ALL --input=none bash "$VERLJOB_HOME/slurm/launch.sh" "$@"
}

allocation::require_gpus() {
    local name
    local -r fields=$'\n   (TRES|ReqTRES|AllocTRES|TresPer[A-Za-z]+)=[^[:space:]]*gres[:/]gpu'
    for name in SLURM_JOB_GPUS SLURM_STEP_GPUS SLURM_GPUS SLURM_GPUS_PER_NODE SLURM_GPUS_PER_TASK SLURM_GPUS_ON_NODE; do
        [[ -z ${!name:-} || ${!name} == 0 ]] || return 0
    done
    [[ ! $JOB_RECORD =~ $fields ]] || return 0
    fail 64 "recipe $RECIPE_NAME trains on GPUs and job $SLURM_JOB_ID has none" \
        "add the flag --gpus-per-node=8 (as many as a node has) to sbatch"
}

# Where Slurm does not count GPUs, names those of a node, which belong to the job (VERLJOB_GPUS_PER_NODE, of a profile).
allocation::add_gpus() {
    local name index ids=''
    local -r count=${VERLJOB_GPUS_PER_NODE:-0}
    [[ $count =~ ^(0|[1-9][0-9]?)$ ]] || fail 64 "VERLJOB_GPUS_PER_NODE is '$count'" "set it to the number of GPUs of a node, or unset it"
    ((count > 0)) || return 0
    for name in SLURM_JOB_GPUS SLURM_STEP_GPUS SLURM_GPUS_ON_NODE; do [[ -z ${!name:-} ]] || return 0; done
    for ((index = 0; index < count; index++)); do ids+=${ids:+,}$index; done
    export SLURM_STEP_GPUS=$ids SLURM_GPUS_ON_NODE=$count
}

# Sets HEAD_ADDRESS to Slurm's address of the first node, unless VERLJOB_HEAD_ADDRESS is set.
allocation::find_head_address() {
    local record
    HEAD_ADDRESS=${VERLJOB_HEAD_ADDRESS:-}
    [[ -z $HEAD_ADDRESS ]] || return 0
    record=$(scontrol show node "${NODES[0]}")
    [[ $record =~ NodeAddr=([^[:space:]]+) ]] && HEAD_ADDRESS=${BASH_REMATCH[1]} || HEAD_ADDRESS=${NODES[0]}
}

# Placeholders for a dry run without an allocation: two nodes with the flags of verl's guides.
allocation::simulate() {
    require_numbers SBATCH_CPUS_PER_TASK
    NODES=(node0 node1) NODE_CPUS=${SBATCH_CPUS_PER_TASK:-28} JOB_LIMIT=unknown JOB_END=unknown HEAD_ADDRESS=node0
    export SLURM_JOB_ID=0 SLURM_JOB_NAME=verl SLURM_JOB_NODELIST='node[0-1]' SLURM_SUBMIT_DIR=$PWD
    export SLURM_JOB_CPUS_PER_NODE="$NODE_CPUS(x2)"
    ! $RECIPE_ACCELERATOR || export SLURM_GPUS_ON_NODE=8 SLURM_STEP_GPUS=0,1,2,3,4,5,6,7
}
