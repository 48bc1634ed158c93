# shellcheck shell=bash disable=SC2034 # what it sets is read by launch.sh
# Watches the srun of the job: which nodes have ended, and which should have.
# Sets: STEP_ASKED, STEP_FAULT, STEP_HEAD_VERDICT, STEP_HEARD, STEP_HEARD_AT, STEP_STOPPED, STEP_TIMES.
# Descriptors: 4 the verdicts that the listener heard.

# Seconds after the first node.sh has ended: then the others are asked to end, and then they are taken for lost. A job
# that ended well gives the others time to keep their logs (node/ray_logs.sh).
readonly WATCH_ASK_S=2 WATCH_LOST_S=6 WATCH_WELL_TIMES=10

# Descriptor 4 is how the listener (srun.sh) tells who was heard; it is open at both ends, so that it never ends.
srun_watch::begin() {
    STEP_HEARD=() STEP_HEARD_AT='' STEP_TIMES=1 STEP_ASKED='' STEP_STOPPED=0 STEP_FAULT=''
    STEP_HEAD_VERDICT=$VERLJOB_RUN_DIR/nodes/0-${NODES[0]}/verdict
    exec 4<> <(:)
}

# Notes what the listener has heard so far.
srun_watch::hear() {
    local id code
    while read -t 0 -u 4; do
        read -r -u 4 id code
        STEP_HEARD+=("$id")
        [[ -n $STEP_HEARD_AT ]] || STEP_HEARD_AT=$SECONDS
        [[ $code != 0 ]] || STEP_TIMES=$WATCH_WELL_TIMES
    done
}

# For process::await: what srun passed on is read to its end, unless something else holds it open.
srun_watch::talk() {
    srun_watch::hear
    ((SECONDS <= STEP_TALK_UNTIL))
}

# usage: srun_watch::look SRUN
# For process::await. When one node.sh has ended the job is over, but another may be stopped, or gone with its node: then
# srun waits for it without end.
srun_watch::look() {
    local since
    srun_watch::hear
    srun_watch::_read
    srun_watch::_unstop "$1"
    [[ -n $STEP_HEARD_AT ]] || return 0
    since=$((SECONDS - STEP_HEARD_AT))
    ((since < WATCH_ASK_S * STEP_TIMES)) || srun_watch::_ask
    ((since < WATCH_LOST_S * STEP_TIMES))
}

# The head's container leaves its verdict before its node.sh does: it counts too, for a node.sh that was stopped, but
# gives that the time of an orderly end (verl_node/node/node.py: one after a loss is hurried).
srun_watch::_read() {
    local line
    [[ -z $STEP_HEARD_AT ]] && ownership::file "$STEP_HEAD_VERDICT" || return 0
    read -r line < "$STEP_HEAD_VERDICT"
    STEP_HEARD_AT=$SECONDS
    [[ $line == code=76 ]] || STEP_HEARD_AT=$((SECONDS + 2))
    [[ $line != code=0 ]] || STEP_TIMES=$WATCH_WELL_TIMES
}

# Once. One that was stopped has to go on before it can end.
srun_watch::_ask() {
    [[ -z $STEP_ASKED ]] || return 0
    STEP_ASKED=yes
    srun::signal CONT || return 0 # the step has ended already
    srun::signal TERM || return 0
}

# usage: srun_watch::_unstop SRUN
# A srun that was stopped for longer than VERLJOB_STALL_S neither tells of the nodes' end nor brings their talk: it goes on, to end the step.
srun_watch::_unstop() {
    process::stopped "$1" || { STEP_STOPPED=0; return 0; }
    ((++STEP_STOPPED > VERLJOB_STALL_S)) || return 0
    STEP_FAULT="srun was stopped on $HOST (SIGSTOP)"
    kill -CONT "$1"
    srun_watch::_ask
}
