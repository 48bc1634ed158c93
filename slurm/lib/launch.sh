# shellcheck shell=bash
# The story of launch.sh once it has found its folder.

# shellcheck source=slurm/lib/say.sh
source "$VERLJOB_HOME/slurm/lib/say.sh"
# shellcheck source=slurm/lib/verdict.sh
source "$VERLJOB_HOME/slurm/lib/verdict.sh"
# shellcheck source=slurm/lib/process.sh
source "$VERLJOB_HOME/slurm/lib/process.sh"
# shellcheck source=slurm/lib/table.sh
source "$VERLJOB_HOME/slurm/lib/table.sh"
# shellcheck source=slurm/lib/recipe.sh
source "$VERLJOB_HOME/slurm/lib/recipe.sh"
# shellcheck source=slurm/lib/allocation.sh
source "$VERLJOB_HOME/slurm/lib/allocation.sh"
# shellcheck source=slurm/lib/rundir.sh
source "$VERLJOB_HOME/slurm/lib/rundir.sh"
# shellcheck source=slurm/lib/ports.sh
source "$VERLJOB_HOME/slurm/lib/ports.sh"

# How long after TERM srun may take: every node.sh ends within 5 s, Slurm kills what is left after KillWait (30 s).
readonly LAUNCH_GRACE_S=20

# usage: launch::run ARGUMENT...
launch::run() {
    trap launch::_conclude EXIT
    table::profile "${VERLJOB_PROFILE:-}"
    recipe::choose "$@"
    if [[ -n ${VERLJOB_DRY_RUN:-} && -z ${SLURM_JOB_ID:-} ]]; then
        allocation::imagine
    else
        allocation::read
        allocation::move_to_head "$@"
        ! $RECIPE_ACCELERATOR || allocation::require_gpus
        allocation::head
    fi
    launch::_settings
    rundir::make
    launch::_ports
    launch::_srun_argv
    if [[ -n ${VERLJOB_DRY_RUN:-} ]]; then launch::_rehearse; else launch::_start; fi
}

# Exports what every node.sh needs to know; see docs/flow.md.
launch::_settings() {
    [[ -n ${VERLJOB_PLATFORM:-} || $RECIPE_PLATFORM == any ]] || VERLJOB_PLATFORM=$RECIPE_PLATFORM
    export VERLJOB_PLATFORM=${VERLJOB_PLATFORM:-$(table::detect)}
    table::read "$VERLJOB_HOME/slurm/platforms/$VERLJOB_PLATFORM.env"
    export VERLJOB_RUNTIME=${VERLJOB_RUNTIME:-docker}
    [[ -r $VERLJOB_HOME/slurm/runtimes/$VERLJOB_RUNTIME.sh ]] \
        || fail 64 "no runtime '$VERLJOB_RUNTIME'" "VERLJOB_RUNTIME names a file of slurm/runtimes"
    export VERLJOB_IMAGE=${VERLJOB_IMAGE:-verl.$VERLJOB_PLATFORM:latest} VERLJOB_PROFILE=${VERLJOB_PROFILE:-}
    export VERLJOB_RECIPE=$RECIPE VERLJOB_HEAD_NODE=$HEAD_ADDRESS VERLJOB_NODELIST_HOSTS
    VERLJOB_NODELIST_HOSTS=$(IFS=,; printf '%s' "${NODES[*]}")
    export VERLJOB_PORT_RANGE=${VERLJOB_PORT_RANGE:-20000-32767} VERLJOB_PORTS=${VERLJOB_PORTS:-512} VERLJOB_PORTS_FOLDER
}

# The head's control, GCS and dashboard ports must be known to all nodes before any of them starts.
launch::_ports() {
    if [[ -n ${VERLJOB_DRY_RUN:-} ]]; then
        export VERLJOB_HEAD_PORTS='<control>,<gcs>,<dashboard>'
        return
    fi
    ports::range
    ports::reserve $((PORTS_HIGH - PORTS_FOR_HEADS + 1)) "$PORTS_HIGH" 3 "$SLURM_JOB_ID"
    export VERLJOB_HEAD_PORTS=$PORTS_FIRST,$((PORTS_FIRST + 1)),$PORTS_LAST
}

# Sets SRUN_ARGV. It says everything itself: a step inherits neither --cpus-per-task nor, under --export=NONE, a PATH.
launch::_srun_argv() {
    SRUN_ARGV=(srun "--nodes=${#NODES[@]}" "--ntasks=${#NODES[@]}" --ntasks-per-node=1 "--cpus-per-task=$NODE_CPUS"
        --cpu-bind=none --export=ALL --kill-on-bad-exit=1 --input=none
        bash -c "$NODE_COMMAND" verljob "$VERLJOB_HOME")
}

launch::_announce() {
    local -r port=${VERLJOB_HEAD_PORTS##*,}
    printf 'job         %s, %s on %d nodes: %s\n' "$SLURM_JOB_ID" "$RECIPE_NAME" "${#NODES[@]}" "${NODES[*]}"
    printf 'image       %s, platform %s, runtime %s\n' "$VERLJOB_IMAGE" "$VERLJOB_PLATFORM" "$VERLJOB_RUNTIME"
    printf 'run folder  %s\n' "$VERLJOB_RUN_DIR"
    printf 'dashboard   ssh -N -L %s:%s:%s %s@%s, then http://localhost:%s\n' \
        "$port" "$HEAD_ADDRESS" "$port" "$(id -un)" "${SLURM_SUBMIT_HOST:-LOGIN-NODE}" "$port"
    printf 'time limit  %s, until %s\n' "$JOB_LIMIT" "$JOB_END"
}

# Starts the step and waits for its end. srun's exit code is not used: it is the largest of its tasks', which
# is 143 or 137 as soon as a peer was killed. What counts are the verdicts.
launch::_start() {
    local srun listener
    local -r talk=$VERLJOB_RUN_DIR/.talk
    VERLJOB_TOKEN=$(od -An -N32 -tx1 /dev/urandom)
    export VERLJOB_TOKEN=${VERLJOB_TOKEN//[[:space:]]/}
    launch::_announce
    rm -f -- "$talk" && mkfifo -m 600 -- "$talk"
    launch::_listen < "$talk" &
    listener=$!
    exec 8> "$talk" && rm -f -- "$talk"
    [[ -z $ENDING ]] || fail 143 "asked to end before the step began" ""
    "${SRUN_ARGV[@]}" 2>&8 8>&- 7<&- &
    srun=$!
    unset VERLJOB_TOKEN
    exec 8>&-
    trap launch::_pass_on TERM INT
    process::await "$srun" "$LAUNCH_GRACE_S" || say::warn "the step is still there $LAUNCH_GRACE_S s after TERM"
    [[ -z $ENDING ]] || ENDING=$SECONDS # the listener's grace begins now
    process::await "$listener" 2 || say::warn "the step still has its stderr open"
    launch::_judge
}

# Who ends this script alone wants the job to end. srun itself answers TERM by killing its tasks at once.
launch::_pass_on() {
    [[ -z $ENDING ]] || return 0
    ENDING=$SECONDS
    scancel --signal=TERM "$SLURM_JOB_ID" || say::note "the step has ended already"
}

# Passes the step's stderr on, and files the verdicts in it.
launch::_listen() {
    local line
    trap '' TERM INT USR1
    while IFS= read -r line; do
        case $line in
            verljob-verdict$'\t'*) verdict::receive "$VERLJOB_RUN_DIR" "$line" >&2 ;;
            *) printf '%s\n' "$line" >&2 ;;
        esac
    done
}

# Waits no longer than this for nodes on which node.sh was killed.
readonly LAUNCH_SWEEP_S=15

# What a killed node.sh could not do itself: containers, folders and logs of the nodes that left no verdict.
launch::_sweep() {
    local -r count=$#
    timeout "$LAUNCH_SWEEP_S" srun --overlap "--nodes=$count" "--ntasks=$count" --ntasks-per-node=1 --cpus-per-task=1 \
        "--nodelist=$(IFS=,; printf '%s' "$*")" --cpu-bind=none --export=ALL --input=none \
        bash -c "$NODE_COMMAND" verljob "$VERLJOB_HOME" sweep || say::warn "could not look after $*"
}

launch::_judge() {
    rundir::silent
    [[ ${#RUNDIR_SILENT[@]} == 0 || -n $ENDING ]] || launch::_sweep "${RUNDIR_SILENT[@]}"
    rundir::verdict || fail 76 "no node left a verdict" "read the lines above and $VERLJOB_RUN_DIR/nodes"
    if [[ ${VERDICT[origin]} == signal && -z $ENDING && ${#RUNDIR_SILENT[@]} != 0 ]]; then
        fail 76 "${RUNDIR_SILENT[*]} left no verdict: node.sh was killed there, or the node was lost" "see $VERLJOB_RUN_DIR/nodes"
    elif [[ ${VERDICT[origin]} == signal && -n $ENDING ]]; then
        launch::_who_ended_it
    fi
    exit "${VERDICT[code]}"
}

# The nodes know a signal; only here it is known whose.
launch::_who_ended_it() {
    local now
    printf -v now '%(%s)T' -1
    if ((${SLURM_JOB_END_TIME:-0} > 0 && now + LAUNCH_GRACE_S >= SLURM_JOB_END_TIME)); then
        VERDICT[cause]="the job reached its time limit, $JOB_LIMIT" VERDICT[fix]="ask for more: sbatch --time"
    else
        VERDICT[cause]="the job was ended from outside (scancel or preemption)" VERDICT[fix]=''
    fi
}

# The EXIT trap: the last line, result.json where no node wrote one, and the code.
launch::_conclude() {
    local -r code=$?
    trap - EXIT
    ports::release
    [[ -z ${VERLJOB_DRY_RUN:-} || $code != 0 ]] || exit 0
    [[ -n ${VERDICT[code]:-} ]] || verdict::set "$code" self "launch.sh ended unexpectedly with $code" "see the lines above"
    if [[ -d ${VERLJOB_RUN_DIR:-} && ! -e $VERLJOB_RUN_DIR/result.json ]]; then
        verdict::result "$VERLJOB_RUN_DIR/result.json" "${VERLJOB_ATTEMPT:-1}" ${NODES[@]+"${NODES[@]}"}
    fi
    verdict::sentence
    exit "${VERDICT[code]}"
}

# Prints, for VERLJOB_DRY_RUN, everything that would be started.
launch::_rehearse() {
    local id
    printf '# the step\n'
    say::command "${SRUN_ARGV[@]}"
    for id in "${!NODES[@]}"; do
        printf '\n# %s\n' "${NODES[id]}"
        SLURM_NODEID=$id SLURMD_NODENAME=${NODES[id]} SLURM_NNODES=${#NODES[@]} SLURM_CPUS_PER_TASK=$NODE_CPUS \
            bash "$VERLJOB_HOME/slurm/node.sh" || fail "$?" "the container of ${NODES[id]} cannot be described" "see above"
    done
    [[ $RECIPE != cluster ]] || return 0
    printf '\n# the training, on the head, when the cluster is whole\n'
    recipe::command "${#NODES[@]}" "${SLURM_GPUS_ON_NODE:-0}"
}
