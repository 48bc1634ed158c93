# shellcheck shell=bash disable=SC2034,SC2153 # what it sets is read by its callers; HOST is node.sh's
# node.sh: its log, its exit, and the cleanup after it was killed.
# Sets: ENDING, NODE_FOLDER, NODE_LOG_WRITER.
# Descriptors: 3 srun's stderr, for the verdict; 1 node.log and the output.

for name in \
    common/{log,ownership,verdict,process,env_table,ports} \
    runtime/runtime \
    node/spec/{devices,resources,mounts,environment,container_spec} \
    node/{signed_image,image,scratch,secrets,container,outcome,host_check}; do
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
    image::release_pull_slot
    [[ -z $NODE_FOLDER ]] || rm -f -- "$NODE_FOLDER/bringing"
    outcome::judge "$code"
    [[ -z $NODE_FOLDER ]] || verdict::write "$NODE_FOLDER/verdict" || log::warn "the verdict could not be written to $NODE_FOLDER"
    verdict::send "$SLURM_NODEID-$HOST" >&3
    [[ -z ${LOCAL:-} ]] || scratch::save_ray_logs "$NODE_FOLDER/ray"
    scratch::remove
    ports::release
    (ports::remove_stale) # of a killed launch.sh
    ((SLURM_NODEID == 0)) || { log::note "$(verdict::sentence)" && node::_close_log; } # launch.sh prints the head's
    # A worker that exits with the head's code would make Slurm kill the head.
    [[ ${VERDICT[host]} == "$HOST" || $code != 0 ]] || exit 0
    exit "${VERDICT[code]}"
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
