# shellcheck shell=bash disable=SC2034,SC2153 # its variables are read by its callers; HOST is node.sh's
# node.sh: its log, its exit with the node's verdict, and the cleanup after it was killed.
# Sets: ENDING, NODE_FOLDER, NODE_LOG_WRITER.
# Descriptors: 3 srun's stderr, for the verdict; 1 node.log and the output.

for name in \
    common/{log,ownership,verdict,process,env_table,profile,ports} \
    runtime/runtime \
    node/spec/{devices,resources,mounts,environment,container_spec} \
    node/{site_setup,signed_image,signed_file,image,scratch,compile_cache,secrets,container,host_check}; do
    # shellcheck source=/dev/null # each is checked on its own
    source "$VERLJOB_HOME/slurm/lib/$name.sh"
done
unset name

# Seconds from TERM until the container is killed: Slurm kills the rest of a step 30 s after TERM (KillWait).
readonly NODE_GRACE_S=3

# Opens the log, which on the head is also the job's output, and sets the exit trap.
node::begin() {
    local -r folder=$VERLJOB_RUN_DIR/nodes/$SLURM_NODEID-$HOST
    NODE_FOLDER='' # until its owner is checked
    exec 3>&2
    trap node::_end EXIT
    trap 'NODE_FAILED_AT="${BASH_SOURCE[0]##*/} line $LINENO: $BASH_COMMAND"' ERR
    trap node::_on_term TERM INT
    ownership::set_umask
    ownership::make_folders "$VERLJOB_RUN_DIR" "${folder%/*}" "$folder"
    [[ ! -e $folder/node.log && ! -L $folder/node.log ]] || ownership::is_file "$folder/node.log" \
        || fail 77 "$folder/node.log is not a file of this account" "remove it"
    NODE_FOLDER=$folder
    if ((SLURM_NODEID == 0)); then
        # Slurm signals every process of the step: tee has to outlive the others to write their last lines.
        exec > >(trap '' TERM INT USR1; exec tee -a -- "$NODE_FOLDER/node.log" 3>&-) 2>&1
    else
        node::_log_through_pipe
    fi
    log::note "node $SLURM_NODEID of job $SLURM_JOB_ID, attempt $VERLJOB_ATTEMPT, step of ${SLURM_CPUS_PER_TASK:-?} CPUs"
}

# Writes the log by a coprocess, so that this shell opens no file of the run directory: each fork closes descriptors, which
# blocks on a file server that hangs, and no heartbeat would be sent meanwhile.
node::_log_through_pipe() {
    coproc NODE_LOG { trap '' TERM INT USR1; exec cat >> "$NODE_FOLDER/node.log" 3>&-; }
    local from=${NODE_LOG[0]} to=${NODE_LOG[1]}
    NODE_LOG_WRITER=$NODE_LOG_PID
    exec 1>&"$to" 2>&1 {from}<&- {to}>&-
}

# Waits up to a second for the last lines of a worker to reach its log.
node::_close_log() {
    local attempt
    exec > /dev/null 2>&1
    for attempt in {1..10}; do
        kill -0 "$NODE_LOG_WRITER" || return 0
        sleep 0.1
    done
}

node::_on_term() {
    ENDING=${ENDING:-$SECONDS}
    [[ -n ${CONTAINER_CLIENT:-} || -n ${PROCESS_RUNNING:-} ]] || exit 143
}

# The EXIT trap: removes everything of the job on the node, and writes and sends the verdict.
node::_end() {
    local -r code=$?
    trap - EXIT ERR
    trap '' TERM INT
    set +e # a failed step must not prevent the next ones
    container::remove
    site_setup::run_after
    image::release_pull_slot
    [[ -z $NODE_FOLDER ]] || rm -f -- "$NODE_FOLDER/bringing"
    node::_set_verdict "$code"
    node::_replace_launch
    [[ -z $NODE_FOLDER ]] || verdict::write "$NODE_FOLDER/verdict" || log::warn "the verdict could not be written to $NODE_FOLDER"
    verdict::send "$SLURM_NODEID-$HOST" >&3
    [[ -z ${LOCAL:-} ]] || scratch::save_ray_logs "$NODE_FOLDER/ray"
    compile_cache::close
    scratch::remove
    ports::release
    (ports::remove_stale) # of a killed launch.sh
    ((SLURM_NODEID == 0)) || { log::note "$(verdict::sentence)" && node::_close_log; } # launch.sh prints the head's
    # A worker that exits with the head's code would make Slurm kill the head.
    [[ ${VERDICT[host]} == "$HOST" || $code != 0 ]] || exit 0
    exit "${VERDICT[code]}"
}

# usage: node::_set_verdict CODE
# Sets VERDICT to that of verl_node, of a failed command of this script, or of the end of the container.
node::_set_verdict() {
    if node::_read_verdict; then
        [[ ${VERDICT[origin]} != signal || -n $ENDING || ${VERDICT[host]} != "$HOST" ]] || node::_set_outside
    elif [[ -n ${VERDICT[code]:-} ]]; then
        return 0
    elif [[ -n $ENDING ]]; then
        verdict::set 143 signal "ended by a signal from outside" "see another node's verdict, scancel or the time limit"
    elif [[ -n ${LEASE_LOST:-} || ($1 == 125 && -n ${LEASE_SILENCE:-}) ]]; then
        node::_set_outside # 125 after a heartbeat: a client that loses its engine exits as if it had not started
    elif [[ -n ${CONTAINER_CLIENT:-} ]]; then
        container::verdict "$1"
    else
        verdict::set 69 self "node.sh stopped with $1 at ${NODE_FAILED_AT:-an unknown line}" "see $NODE_FOLDER/node.log"
    fi
}

# The container got a signal and this script did not, or the lease ended with the client or its engine.
node::_set_outside() {
    if [[ -n ${LEASE_LOST:-} ]]; then
        verdict::set 76 self "$LEASE_LOST" "see $NODE_FOLDER/node.log and the engine's log"
    else
        verdict::set 76 outside "the container on $HOST was ended from outside: manually, or with its client or engine" \
            "see $NODE_FOLDER/node.log"
    fi
}

# Reads verl_node's verdict, from the run directory if the node-local disk was full; returns 1 without one.
node::_read_verdict() {
    local file
    [[ -n ${CONTAINER_CLIENT:-} ]] || return 1
    for file in "$LOCAL/out/verdict" "$NODE_FOLDER/verdict"; do
        ! ownership::is_file "$file" || { verdict::read "$file" && return 0; }
    done
    return 1
}

# On the head, writes result.json if launch.sh was killed.
node::_replace_launch() {
    local -a nodes
    [[ $SLURM_NODEID == 0 && -n $ENDING && -n ${VERLJOB_LAUNCH_PID:-} && ! -e /proc/$VERLJOB_LAUNCH_PID ]] || return 0
    verdict::set 143 signal "launch.sh was killed on $HOST" "find the sender of SIGKILL, and check the node's memory"
    IFS=, read -r -a nodes <<< "$VERLJOB_NODELIST_HOSTS"
    verdict::write_result "$VERLJOB_RUN_DIR" "$VERLJOB_ATTEMPT" "${nodes[@]}"
}

# For srun::sweep: cleans up after a killed node.sh.
node::sweep() {
    local id=0 host
    ownership::set_umask
    for host in ${VERLJOB_NODELIST_HOSTS//,/ }; do # SLURM_NODEID counts the nodes of the cleanup's own step
        [[ $host != "$HOST" ]] || break
        id=$((id + 1))
    done
    scratch::adopt "$id" || return 0
    runtime::remove "${LOCAL##*/}"
    secrets::find
    scratch::save_ray_logs "$VERLJOB_RUN_DIR/nodes/$id-$HOST/ray"
    scratch::remove
    ports::remove_stale
}
