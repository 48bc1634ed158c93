# shellcheck shell=bash
# The launch, after launch.sh has found its checkout: from the arguments to one srun and the verdict.
# Sets: VERLJOB_HEAD_NODE, VERLJOB_HEAD_PORTS, VERLJOB_IMAGE, VERLJOB_NODELIST_HOSTS, VERLJOB_PLATFORM, VERLJOB_PORTS,
#   VERLJOB_PORTS_FOLDER, VERLJOB_PORT_RANGE, VERLJOB_PROFILE, VERLJOB_RECIPE, VERLJOB_RUNTIME.

for name in \
    common/{log,ownership,verdict,process,env_table,profile,ports} \
    node/{image,signed_image,signed_file} \
    launch/{recipe,allocation,run_dir,srun,requeue,finish}; do
    # shellcheck source=/dev/null # each is checked on its own
    source "$VERLJOB_HOME/slurm/lib/$name.sh"
done
unset name

# usage: launch::run ARGUMENT...
launch::run() {
    trap finish::report EXIT
    profile::read "${VERLJOB_PROFILE:-}" launch
    recipe::parse "$@"
    if [[ -n ${VERLJOB_DRY_RUN:-} && -z ${SLURM_JOB_ID:-} ]]; then
        allocation::simulate
    else
        allocation::read
        allocation::move_to_head "$@"
        allocation::add_gpus
        ! $RECIPE_ACCELERATOR || allocation::require_gpus
        allocation::find_head_address
    fi
    launch::_export_settings
    ownership::set_umask
    run_dir::make
    requeue::begin
    [[ -n ${VERLJOB_DRY_RUN:-} ]] || signed_image::pin
    launch::_reserve_ports
    srun::make_argv
    if [[ -n ${VERLJOB_DRY_RUN:-} ]]; then
        launch::_print_dry_run
    else
        launch::_print_banner
        srun::run
        finish::choose_verdict
    fi
}

# Exports the settings of every node.sh; see docs/flow.md.
launch::_export_settings() {
    [[ -n ${VERLJOB_PLATFORM:-} || $RECIPE_PLATFORM == any ]] || VERLJOB_PLATFORM=$RECIPE_PLATFORM
    export VERLJOB_PLATFORM=${VERLJOB_PLATFORM:-$(env_table::detect_platform)}
    env_table::read_platform
    export VERLJOB_RUNTIME=${VERLJOB_RUNTIME:-docker}
    env_table::require_name VERLJOB_RUNTIME "$VERLJOB_RUNTIME"
    [[ -r $VERLJOB_HOME/slurm/runtimes/$VERLJOB_RUNTIME.sh ]] \
        || fail 64 "no runtime '$VERLJOB_RUNTIME'" "set VERLJOB_RUNTIME to one of: $(log::file_names "$VERLJOB_HOME/slurm/runtimes" .sh)"
    [[ ${VERLJOB_PULLS:-16} =~ ^[1-9][0-9]*$ ]] || fail 64 "VERLJOB_PULLS is '$VERLJOB_PULLS'" "set it to a whole number from 1, or unset it"
    launch::_export_patience VERLJOB_SILENCE_S 60
    launch::_export_patience VERLJOB_STALL_S 20
    require_numbers VERLJOB_PULL_TIMEOUT_S VERLJOB_SILENCE_S VERLJOB_STALL_S SLURM_JOB_ID SLURM_JOB_END_TIME SLURM_RESTART_COUNT
    export VERLJOB_IMAGE=${VERLJOB_IMAGE:-verl.$VERLJOB_PLATFORM:latest} VERLJOB_PROFILE=${VERLJOB_PROFILE:-}
    image::resolve_path
    export VERLJOB_RECIPE=$RECIPE VERLJOB_HEAD_NODE=$HEAD_ADDRESS VERLJOB_NODELIST_HOSTS
    VERLJOB_NODELIST_HOSTS=$(IFS=,; printf '%s' "${NODES[*]}")
    [[ ${VERLJOB_DASHBOARD:-} =~ ^(0|1|node)?$ ]] \
        || fail 64 "VERLJOB_DASHBOARD=$VERLJOB_DASHBOARD" "write 0 (off), 1 (on the head's loopback) or node (on its address), or unset it"
    export VERLJOB_PORT_RANGE=${VERLJOB_PORT_RANGE:-20000-32767} VERLJOB_PORTS=${VERLJOB_PORTS:-512} VERLJOB_PORTS_FOLDER
}

# usage: launch::_export_patience NAME DEFAULT_S
# Exports a timeout for silence; verl_node/settings/parsing.py has the same minimum (a test holds them equal).
launch::_export_patience() {
    local -r seconds=${!1:-$2}
    [[ $seconds =~ ^([89]|[1-9][0-9]{1,4})$ ]] || fail 64 "$1 is '$seconds'" "set it to 8 seconds or more, or unset it for $2"
    export "$1=$seconds"
}

# Reserves the head's control, GCS and dashboard ports, which all nodes need before any of them starts.
launch::_reserve_ports() {
    if [[ -n ${VERLJOB_DRY_RUN:-} ]]; then
        export VERLJOB_HEAD_PORTS='<control>,<gcs>,<dashboard>'
        return
    fi
    ports::read_range
    ports::reserve $((PORTS_HIGH - PORTS_FOR_HEADS + 1)) "$PORTS_HIGH" 3 "$SLURM_JOB_ID"
    export VERLJOB_HEAD_PORTS=$PORTS_FIRST,$((PORTS_FIRST + 1)),$PORTS_LAST
}

# Prints the first lines of the job's output.
launch::_print_banner() {
    printf 'job         %s, %s on %d nodes: %s\n' "$SLURM_JOB_ID" "$RECIPE_NAME" "${#NODES[@]}" "${NODES[*]}"
    printf 'image       %s, platform %s, runtime %s\n' "$VERLJOB_IMAGE" "$VERLJOB_PLATFORM" "$VERLJOB_RUNTIME"
    printf 'run folder  %s\n' "$VERLJOB_RUN_DIR"
    launch::_print_dashboard "${VERLJOB_HEAD_PORTS##*,}" "$(id -un)" "${SLURM_SUBMIT_HOST:-LOGIN-NODE}"
    launch::_print_debugger "${VERLJOB_HEAD_PORTS##*,}" "${NODES[0]}"
    printf 'time limit  %s, until %s\n' "$JOB_LIMIT" "$JOB_END"
    ! requeue::is_enabled || printf 'attempt     %d of %d at most, checkpoints in %s\n' "$VERLJOB_ATTEMPT" "$VERLJOB_ATTEMPTS" "$VERLJOB_CHECKPOINTS"
}

# usage: launch::_print_dashboard PORT USER LOGIN-NODE
# The dashboard listens on the head's loopback, reached by ssh to the head; sites without ssh to nodes set `node`.
launch::_print_dashboard() {
    local -r port=$1 user=$2 login=$3
    case ${VERLJOB_DASHBOARD:-} in
        0)
            printf 'dashboard   off (VERLJOB_DASHBOARD=0)\n'
            return
            ;;
        node) printf 'dashboard   ssh -N -L %s:%s:%s %s@%s' "$port" "$HEAD_ADDRESS" "$port" "$user" "$login" ;;
        *) printf 'dashboard   ssh -N -L %s:127.0.0.1:%s -J %s@%s %s@%s' "$port" "$port" "$user" "$login" "$user" "$HEAD_ADDRESS" ;;
    esac
    printf ', then http://localhost:%s\n' "$port"
    printf 'its token   srun --jobid=%s --overlap --nodes=1 --ntasks=1 --mem=0 --nodelist=%s cat %s\n' "$SLURM_JOB_ID" "${NODES[0]}" \
        "${VERLJOB_LOCAL:-/tmp}/verljob-$UID-$SLURM_JOB_ID-$VERLJOB_ATTEMPT-0/token"
}

# usage: launch::_print_debugger PORT HEAD
launch::_print_debugger() {
    case ${VERLJOB_DEBUG:-} in
        1)
            printf 'debugger    breakpoint() and unhandled exceptions wait. Each prints its launch.json for VS Code (debugpy, attach); or\n'
            printf '            the extension Ray Distributed Debugger: add the cluster http://localhost:%s\n' "$1"
            ;;
        legacy)
            printf 'debugger    breakpoint() waits; on %s: %s\n' "$2" \
                "srun --jobid=${SLURM_JOB_ID:-JOB} --overlap --pty --nodes=1 --ntasks=1 --nodelist=$2 $(launch::_print_ray) debug"
            ;;
    esac
    [[ -z ${VERLJOB_DEBUG:-} ]] || log::warn "a debugger does not authenticate: anyone who reaches the nodes can run code as $(id -un)"
}

# Prints the command that runs the job's `ray` on the head: in its container (with Apptainer in the account's newest one),
# or with bare in the environment, with the job's token.
launch::_print_ray() {
    local -r job=$UID-${SLURM_JOB_ID:-JOB}-${VERLJOB_ATTEMPT:-1}-0
    if [[ $VERLJOB_RUNTIME == bare ]]; then
        printf 'env RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=%q %q' "${VERLJOB_LOCAL:-/tmp}/verljob-$job/token" "$VERLJOB_IMAGE/bin/ray"
    elif [[ $VERLJOB_RUNTIME == apptainer ]]; then
        printf '%s' "bash -c 'exec nsenter --preserve-credentials --user --mount --pid --ipc " \
            "--target \"\$(pgrep -n -u $UID -x \"appinit|sinit\")\" /bin/bash /run/verljob/environment ray \"\$@\"' ray"
    elif [[ $VERLJOB_RUNTIME == enroot ]]; then
        # shellcheck disable=SC2016 # expands on the head
        printf "bash -c '%s' %q %q ray" 'source "$0" && container_processes::enter "$@"' \
            "$VERLJOB_HOME/slurm/lib/runtime/container_processes.sh" "${VERLJOB_LOCAL:-/tmp}/verljob-$job/lease"
    else
        printf '%s exec --interactive --tty verljob-%s ray' "$VERLJOB_RUNTIME" "$job"
    fi
}

# Prints, for VERLJOB_DRY_RUN, every command that a job would start.
launch::_print_dry_run() {
    local id
    ! signed_image::is_required || printf '# %s is first verified with the key %s by cosign, and run by its digest\n' "$VERLJOB_IMAGE" "$VERLJOB_REQUIRE_SIGNATURE"
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
