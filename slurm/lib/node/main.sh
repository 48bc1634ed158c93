# shellcheck shell=bash disable=SC2034,SC2153 # what it sets is read by its callers; HOST is node.sh's
# node.sh: its log, its exit, and the cleanup after it was killed.
# Sets: ENDING, NODE_FOLDER, NODE_LOG_WRITER.
# Descriptors: 3 srun's stderr, for the verdict; 1 node.log and the output.

for name in \
    common/{log,ownership,verdict,process,env_table,ports} \
    runtime/runtime \
    node/spec/{account,devices,resources,mounts,environment,container_spec} \
    node/{lease,signed_image,image,scratch,secrets,container,outcome,ray_logs} \
    node/{stale_containers,pull_slots,gpu_users,host_check}; do
    # shellcheck source=/dev/null # each is checked by itself
    source "$VERLJOB_HOME/slurm/lib/$name.sh"
done
unset name

# Slurm kills what is left of a step 30 s after TERM (KillWait); the job is to be gone well before.
readonly NODE_GRACE_S=3

# Opens the log and arms the end. The head's talk is also the job's output; a worker's is in its log alone, and its
# verdict travels on descriptor 3, which is the step's stderr.
node::begin() {
    local -r folder=$VERLJOB_RUN_DIR/nodes/$SLURM_NODEID-$HOST
    NODE_FOLDER='' # until it is known to be this account's
    exec 3>&2
    trap node::_end EXIT
    trap 'NODE_FAILED_AT="${BASH_SOURCE[0]##*/} line $LINENO: $BASH_COMMAND"' ERR
    trap node::_asked_to_end TERM INT
    ownership::begin
    ownership::make "$VERLJOB_RUN_DIR" "${folder%/*}" "$folder"
    [[ ! -e $folder/node.log && ! -L $folder/node.log ]] || ownership::file "$folder/node.log" \
        || fail 77 "$folder/node.log is no file of this account" "remove it"
    NODE_FOLDER=$folder
    if ((SLURM_NODEID == 0)); then
        # Slurm signals every process of the step: tee has to outlive the others to write down their last words.
        exec > >(trap '' TERM INT USR1; exec tee -a -- "$NODE_FOLDER/node.log" 3>&-) 2>&1
    else
        node::_log_by_a_pipe
    fi
    log::note "node $SLURM_NODEID of job $SLURM_JOB_ID, attempt $VERLJOB_ATTEMPT, step of ${SLURM_CPUS_PER_TASK:-?} CPUs"
}

# Every fork and every redirection closes descriptors, and closing one of a file on a network waits for a server that does not
# answer: this shell holds none of the run directory, or it would give no sign of life meanwhile.
node::_log_by_a_pipe() {
    coproc NODE_LOG { trap '' TERM INT USR1; exec cat >> "$NODE_FOLDER/node.log" 3>&-; }
    local from=${NODE_LOG[0]} to=${NODE_LOG[1]}
    NODE_LOG_WRITER=$NODE_LOG_PID
    exec 1>&"$to" 2>&1 {from}<&- {to}>&-
}

# Gives the last words of a worker a second to arrive in its log.
node::_close_log() {
    local attempt
    exec > /dev/null 2>&1
    for attempt in {1..10}; do
        kill -0 "$NODE_LOG_WRITER" || return 0
        sleep 0.1
    done
}

node::_asked_to_end() {
    ENDING=${ENDING:-$SECONDS}
    [[ -n ${CONTAINER_CLIENT:-} || -n ${PROCESS_RUNNING:-} ]] || exit 143
}

# The EXIT trap: whatever happened, the container is gone, the verdict is filed, and nothing stays on the node.
node::_end() {
    local -r code=$?
    trap - EXIT ERR
    trap '' TERM INT
    set +e # each step of the end is made, whatever became of the one before
    container::remove
    pull_slots::give
    [[ -z $NODE_FOLDER ]] || rm -f -- "$NODE_FOLDER/bringing"
    outcome::judge "$code"
    [[ -z $NODE_FOLDER ]] || verdict::write "$NODE_FOLDER/verdict" || log::warn "the verdict could not be written to $NODE_FOLDER"
    verdict::send "$SLURM_NODEID-$HOST" >&3
    [[ -z ${LOCAL:-} ]] || ray_logs::keep "$LOCAL/tmp/ray" "$NODE_FOLDER/ray"
    scratch::remove
    ports::release
    (ports::tidy) # a killed launch.sh left its own; what fails here is nobody's verdict
    ((SLURM_NODEID == 0)) || { log::note "$(verdict::sentence)" && node::_close_log; } # the head's is said by launch.sh
    # A worker that heard the head's verdict has done its part: ending with that code would have Slurm kill the head.
    [[ ${VERDICT[host]} == "$HOST" || $code != 0 ]] || exit 0
    exit "${VERDICT[code]}"
}

# For launch.sh, when the job's node.sh was killed here: its container, its logs and its folder.
node::sweep() {
    local id=0 host
    ownership::begin
    for host in ${VERLJOB_NODELIST_HOSTS//,/ }; do # a step of its own counts its nodes from 0
        [[ $host != "$HOST" ]] || break
        id=$((id + 1))
    done
    scratch::adopt "$id" || return 0
    runtime::remove "${LOCAL##*/}"
    secrets::find
    ray_logs::keep "$LOCAL/tmp/ray" "$VERLJOB_RUN_DIR/nodes/$id-$HOST/ray"
    scratch::remove
    ports::tidy
}
