# shellcheck shell=bash
# The verdict of a node: its container's, or what is known of the container's end.

# usage: outcome::judge CODE
# Sets VERDICT: verl_node's own, that of a failed step of this script, or what can be told of a killed container.
outcome::judge() {
    outcome::_of_the_node "$1"
    outcome::_orphaned
}

# usage: outcome::_of_the_node CODE
outcome::_of_the_node() {
    if outcome::_told; then
        [[ ${VERDICT[origin]} != signal || -n $ENDING || ${VERDICT[host]} != "$HOST" ]] || outcome::_found
    elif [[ -n ${VERDICT[code]:-} ]]; then
        return 0
    elif [[ -n $ENDING ]]; then
        verdict::set 143 signal "ended by a signal from outside" "another node's verdict, scancel or the time limit tells why"
    elif [[ -n ${LEASE_LOST:-} ]]; then
        verdict::set 76 self "$LEASE_LOST" "see $NODE_FOLDER/node.log and the engine's log"
    elif [[ $1 == 125 && -n ${LEASE_SILENCE:-} ]]; then
        outcome::_found # it gave signs of life: a client that loses its engine ends as one that could not start
    elif [[ -n ${CONTAINER_CLIENT:-} ]]; then
        container::verdict "$1"
    else
        verdict::set 69 self "node.sh stopped with $1 at ${NODE_FAILED_AT:-an unknown line}" "see $NODE_FOLDER/node.log"
    fi
}

# A signal that was not for this script came by docker stop, or the lease ended with the client or its engine.
outcome::_found() {
    if [[ -n ${LEASE_LOST:-} ]]; then
        verdict::set 76 self "$LEASE_LOST" "see $NODE_FOLDER/node.log"
    else
        verdict::set 76 outside "the container on $HOST was ended from outside: by the death of its client or engine, or by hand" \
            "see $NODE_FOLDER/node.log"
    fi
}

# Sets VERDICT to what verl_node left: here, or in the run directory when there was no room here. Returns 1 without one.
outcome::_told() {
    local file
    [[ -n ${CONTAINER_CLIENT:-} ]] || return 1
    for file in "$LOCAL/out/verdict" "$NODE_FOLDER/verdict"; do
        ! ownership::is_file "$file" || { verdict::read "$file" && return 0; }
    done
    return 1
}

# On the head: nobody else is left to tell how the job ended when launch.sh was killed.
outcome::_orphaned() {
    local -a nodes
    [[ $SLURM_NODEID == 0 && -n $ENDING && -n ${VERLJOB_LAUNCH_PID:-} && ! -e /proc/$VERLJOB_LAUNCH_PID ]] || return 0
    verdict::set 143 signal "launch.sh was killed on $HOST" "look for who sent it SIGKILL, and for the node running out of memory"
    IFS=, read -r -a nodes <<< "$VERLJOB_NODELIST_HOSTS"
    verdict::write_result "$VERLJOB_RUN_DIR/result.json" "$VERLJOB_ATTEMPT" "${nodes[@]}"
}
