# shellcheck shell=bash disable=SC2034 # what it sets is read by its callers
# The lease of a node's container and its answer. Whoever reads the lease in the container sees end of file when this
# shell is gone, however it went, and misses its signs when it is stopped. The supervisor in the container answers into
# a FIFO of its own, so that one which is stopped or frozen, or whose engine no longer tells of its end, is given up.
# Sets: LEASE_CORES, LEASE_LOST, LEASE_SILENT, LEASE_STALL_S, LEASE_STOPPED.
# Descriptors: 9 the lease, 8 the container's sign of life.

# VERLJOB_STALL_S seconds without a sign, or stopped by what /proc says, come before that. Without a sign it takes longer on a node that
# has more than this many tasks ready to run for each core (supervision/load.py says where the number is from), up to sixteen times as long.
readonly LEASE_TASKS_A_CORE=16

# usage: lease::hold
# Descriptor 9 is the lease: no child may inherit it. Descriptor 8 is the pulse, open at both ends so that it never ends.
lease::hold() {
    [[ ${VERLJOB_STALL_S:-} =~ ^[1-9][0-9]{0,4}$ ]] || fail 64 "VERLJOB_STALL_S is '${VERLJOB_STALL_S:-}'" "start node.sh by launch.sh, which sets it"
    LEASE_STALL_S=$VERLJOB_STALL_S
    exec 9<> "$LOCAL/lease"
    exec 8<> "$LOCAL/out/pulse"
    LEASE_SILENT='' LEASE_STOPPED=0 LEASE_LOST=''
    LEASE_CORES=$(nproc --all)
}

lease::end() { exec 9<&- 8<&-; }

# usage: lease::look CLIENT
# For process::await: gives a sign, and looks. What does not change for that many looks is given up: LEASE_LOST says
# why. Looks are counted, by the hundredth, and not timed, and a pulse that was never felt is not missed.
lease::look() {
    local beat
    printf . >&9
    [[ -z $LEASE_SILENT ]] || lease::_miss
    while read -t 0 -u 8; do read -r -N 1 -u 8 beat && LEASE_SILENT=0; done
    lease::_stopped "$1"
    ((${LEASE_SILENT:-0} <= LEASE_STALL_S * 100)) \
        || LEASE_LOST="the container on $HOST gave no sign of life for $LEASE_STALL_S s: it was stopped or frozen, or its engine hangs"
    [[ -z $LEASE_LOST ]]
}

# A look without a sign: a hundred, and less on a crowded node. Nothing is forked.
lease::_miss() {
    local tasks='' weight=100
    { read -r _ _ _ tasks _ < /proc/loadavg; } 2> /dev/null || : # a machine that does not tell
    tasks=${tasks%/*}
    [[ $tasks =~ ^[0-9]+$ ]] || tasks=0
    ((tasks <= LEASE_TASKS_A_CORE * LEASE_CORES)) || weight=$((100 * LEASE_TASKS_A_CORE * LEASE_CORES / tasks))
    LEASE_SILENT=$((LEASE_SILENT + (weight > 6 ? weight : 6)))
}

# usage: lease::_stopped CLIENT
lease::_stopped() {
    local who=''
    ! process::stopped "$1" || who="the client of $VERLJOB_RUNTIME"
    [[ $SLURM_NODEID != 0 ]] || ! process::stopped "${VERLJOB_LAUNCH_PID:-0}" || who=launch.sh
    LEASE_STOPPED=$((${#who} ? LEASE_STOPPED + 1 : 0))
    ((LEASE_STOPPED > LEASE_STALL_S)) || return 0
    LEASE_LOST="$who on $HOST was stopped $LEASE_STALL_S s ago (SIGSTOP)"
    [[ $who != launch.sh ]] || kill -CONT "$VERLJOB_LAUNCH_PID" # it has to end the job
}
