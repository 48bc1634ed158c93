# shellcheck shell=bash disable=SC2034 # what it sets is read by launch.sh
# Reads the allocation on its first node. JOB_RECORD is the job's `scontrol show job`.
# Sets: HEAD_ADDRESS, JOB_END, JOB_LIMIT, NODES, NODE_CPUS, SLURM_GPUS_ON_NODE, SLURM_JOB_CPUS_PER_NODE,
#   SLURM_JOB_END_TIME, SLURM_JOB_ID, SLURM_JOB_NAME, SLURM_JOB_NODELIST, SLURM_STEP_GPUS, SLURM_SUBMIT_DIR.

# usage: allocation::read
# Sets NODES (in Slurm's order), NODE_CPUS, HEAD_NODE, JOB_END and JOB_LIMIT (words).
allocation::read() {
    [[ -n ${SLURM_JOB_ID:-} ]] || fail 64 "this is not inside an allocation" \
        "sbatch $VERLJOB_HOME/slurm/launch.sh …, or VERLJOB_DRY_RUN=1 to see what it would do"
    [[ -z ${SLURM_HET_SIZE:-} ]] || fail 64 "a heterogeneous job of $SLURM_HET_SIZE components" \
        "ask for equal nodes, in one component"
    mapfile -t NODES < <(scontrol show hostnames "${SLURM_JOB_NODELIST:-}")
    ((${#NODES[@]} > 0)) || fail 64 "scontrol names no node for SLURM_JOB_NODELIST=${SLURM_JOB_NODELIST:-}" "is Slurm's client set up here?"
    allocation::_cpus
    JOB_LIMIT=$(allocation::_field TimeLimit) JOB_END=$(allocation::_field EndTime)
    SLURM_JOB_END_TIME=${SLURM_JOB_END_TIME:-$(allocation::end)} # Slurm itself has it since 23.02
    [[ -z $SLURM_JOB_END_TIME ]] || export SLURM_JOB_END_TIME
}

# usage: allocation::end
# Prints when the job's time limit ends it, in epoch seconds; nothing where it has none.
allocation::end() {
    local end
    end=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%e) || return 0
    [[ ! $end =~ ^[0-9]{4}- ]] || date -d "$end" +%s
}

# usage: allocation::_field NAME
# Prints the word after NAME= in the job's record.
allocation::_field() {
    [[ $JOB_RECORD =~ [[:space:]]$1=([^[:space:]]*) ]] || return 0
    printf '%s\n' "${BASH_REMATCH[1]}"
}

# "16(x2),8" gives 8: every node gets a task of the size that the smallest can hold.
allocation::_cpus() {
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
# From salloc the script runs on the submit host: goes on by one srun on the first node, beside the step to come.
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

# usage: allocation::require_gpus
allocation::require_gpus() {
    local name
    for name in SLURM_JOB_GPUS SLURM_STEP_GPUS SLURM_GPUS SLURM_GPUS_PER_NODE SLURM_GPUS_PER_TASK SLURM_GPUS_ON_NODE; do
        [[ -z ${!name:-} || ${!name} == 0 ]] || return 0
    done
    [[ ! $JOB_RECORD =~ gres[:/]gpu ]] || return 0
    fail 64 "recipe $RECIPE_NAME trains on GPUs and job $SLURM_JOB_ID has none" \
        "add the flag --gpus-per-node=8 (as many as a node has) to sbatch"
}

# Sets HEAD_ADDRESS: what Slurm itself calls the first node by, unless the user knows better.
allocation::head() {
    local record
    HEAD_ADDRESS=${VERLJOB_HEAD_ADDRESS:-}
    [[ -z $HEAD_ADDRESS ]] || return 0
    record=$(scontrol show node "${NODES[0]}")
    [[ $record =~ NodeAddr=([^[:space:]]+) ]] && HEAD_ADDRESS=${BASH_REMATCH[1]} || HEAD_ADDRESS=${NODES[0]}
}

# Stands in for the above where a dry run has no allocation: the header's two nodes, the flags of the guides.
allocation::imagine() {
    require_numbers SBATCH_CPUS_PER_TASK
    NODES=(node0 node1) NODE_CPUS=${SBATCH_CPUS_PER_TASK:-28} JOB_LIMIT=unknown JOB_END=unknown HEAD_ADDRESS=node0
    export SLURM_JOB_ID=0 SLURM_JOB_NAME=verl SLURM_JOB_NODELIST='node[0-1]' SLURM_SUBMIT_DIR=$PWD
    export SLURM_JOB_CPUS_PER_NODE="$NODE_CPUS(x2)"
    ! $RECIPE_ACCELERATOR || export SLURM_GPUS_ON_NODE=8 SLURM_STEP_GPUS=0,1,2,3,4,5,6,7
}
