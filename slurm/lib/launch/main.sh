# shellcheck shell=bash
# launch.sh, once it has found its checkout: from the arguments to one srun and the verdict.
# Sets: VERLJOB_HEAD_NODE, VERLJOB_HEAD_PORTS, VERLJOB_IMAGE, VERLJOB_NODELIST_HOSTS, VERLJOB_PLATFORM, VERLJOB_PORTS,
#   VERLJOB_PORTS_FOLDER, VERLJOB_PORT_RANGE, VERLJOB_PROFILE, VERLJOB_RECIPE, VERLJOB_RUNTIME.

for name in \
    common/{log,ownership,verdict,process,env_table,ports} \
    node/{image,signed_image} \
    launch/{debug,recipe,allocation,run_dir,announce,srun,srun_watch,requeue,finish}; do
    # shellcheck source=/dev/null # each is checked by itself
    source "$VERLJOB_HOME/slurm/lib/$name.sh"
done
unset name

# usage: launch::run ARGUMENT...
launch::run() {
    trap finish::report EXIT
    env_table::profile "${VERLJOB_PROFILE:-}"
    debug::choose "$@"
    recipe::choose "${@:DEBUG_WORDS+1}"
    if [[ -n ${VERLJOB_DRY_RUN:-} && -z ${SLURM_JOB_ID:-} ]]; then
        allocation::imagine
    else
        allocation::read
        allocation::move_to_head "$@"
        ! $RECIPE_ACCELERATOR || allocation::require_gpus
        allocation::head
    fi
    launch::_settings
    ownership::begin
    run_dir::make
    requeue::settings
    [[ -n ${VERLJOB_DRY_RUN:-} ]] || signed_image::pin
    launch::_ports
    srun::argv
    if [[ -n ${VERLJOB_DRY_RUN:-} ]]; then
        launch::_rehearse
    else
        announce::job
        srun::run
        finish::choose_verdict
    fi
}

# Exports what every node.sh needs to know; see docs/flow.md.
launch::_settings() {
    [[ -n ${VERLJOB_PLATFORM:-} || $RECIPE_PLATFORM == any ]] || VERLJOB_PLATFORM=$RECIPE_PLATFORM
    export VERLJOB_PLATFORM=${VERLJOB_PLATFORM:-$(env_table::detect)}
    env_table::platform
    export VERLJOB_RUNTIME=${VERLJOB_RUNTIME:-docker}
    env_table::require_name VERLJOB_RUNTIME "$VERLJOB_RUNTIME"
    [[ -r $VERLJOB_HOME/slurm/runtimes/$VERLJOB_RUNTIME.sh ]] \
        || fail 64 "no runtime '$VERLJOB_RUNTIME'" "VERLJOB_RUNTIME names a file of slurm/runtimes"
    [[ ${VERLJOB_PULLS:-16} =~ ^[1-9][0-9]*$ ]] || fail 64 "VERLJOB_PULLS is '$VERLJOB_PULLS'" "set it to a whole number from 1, or unset it"
    launch::_patience VERLJOB_SILENCE_S 60
    launch::_patience VERLJOB_STALL_S 20
    require_numbers VERLJOB_PULL_TIMEOUT_S VERLJOB_SILENCE_S VERLJOB_STALL_S SLURM_JOB_ID SLURM_JOB_END_TIME SLURM_RESTART_COUNT
    export VERLJOB_IMAGE=${VERLJOB_IMAGE:-verl.$VERLJOB_PLATFORM:latest} VERLJOB_PROFILE=${VERLJOB_PROFILE:-}
    image::read_name
    export VERLJOB_RECIPE=$RECIPE VERLJOB_HEAD_NODE=$HEAD_ADDRESS VERLJOB_NODELIST_HOSTS
    VERLJOB_NODELIST_HOSTS=$(IFS=,; printf '%s' "${NODES[*]}")
    [[ ${VERLJOB_DASHBOARD:-} =~ ^(0|1|node)?$ ]] \
        || fail 64 "VERLJOB_DASHBOARD=$VERLJOB_DASHBOARD" "write 0 (off), 1 (on the head's loopback) or node (on its address), or unset it"
    export VERLJOB_PORT_RANGE=${VERLJOB_PORT_RANGE:-20000-32767} VERLJOB_PORTS=${VERLJOB_PORTS:-512} VERLJOB_PORTS_FOLDER
}

# usage: launch::_patience NAME DEFAULT_S
# Exports how many seconds of silence are borne; verl_node/settings/parsing.py has the same least (a test holds them equal).
launch::_patience() {
    local -r seconds=${!1:-$2}
    [[ $seconds =~ ^([89]|[1-9][0-9]{1,4})$ ]] || fail 64 "$1 is '$seconds'" "set it to 8 seconds or more, or unset it for $2"
    export "$1=$seconds"
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

# Prints, for VERLJOB_DRY_RUN, everything that would be started.
launch::_rehearse() {
    local id
    ! signed_image::demanded || printf '# %s is first verified with the key %s by cosign, and run by its digest\n' "$VERLJOB_IMAGE" "$VERLJOB_REQUIRE_SIGNATURE"
    printf '# the step\n'
    log::command "${SRUN_ARGV[@]}"
    for id in "${!NODES[@]}"; do
        printf '\n# %s\n' "${NODES[id]}"
        SLURM_NODEID=$id SLURMD_NODENAME=${NODES[id]} SLURM_NNODES=${#NODES[@]} SLURM_CPUS_PER_TASK=$NODE_CPUS \
            bash "$VERLJOB_HOME/slurm/node.sh" || fail "$?" "the container of ${NODES[id]} cannot be described" "see above"
    done
    [[ $RECIPE != cluster ]] || return 0
    printf '\n# then verl_node on the head makes the command of the training; this prints it:\n'
    log::command ./run job.check "$RECIPE_NAME" --print --nodes="${#NODES[@]}" --gpus-per-node="${SLURM_GPUS_ON_NODE:-1}" -- \
        ${OVERRIDES[@]+"${OVERRIDES[@]}"}
}
