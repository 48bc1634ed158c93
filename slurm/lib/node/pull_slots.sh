# shellcheck shell=bash
# Turns at the registry: at most VERLJOB_PULLS nodes of a job pull at once. A turn is a folder in the run directory, since
# that is made by one node alone on any file system; where the nodes do not share one, nobody waits.
# Sets: TURN.

TURN=''

# usage: pull_slots::take
# Waits for a turn, at most VERLJOB_PULL_TIMEOUT_S; then goes on without one.
pull_slots::take() {
    local -r folder=$VERLJOB_RUN_DIR/.pulls deadline=$((SECONDS + ${VERLJOB_PULL_TIMEOUT_S:-1800}))
    local n
    mkdir -p -- "$folder" || return 0 # a full disk is no reason not to pull
    while ((SECONDS < deadline)); do
        for ((n = 1; n <= ${VERLJOB_PULLS:-16}; n++)); do
            if mkdir -- "$folder/$n" 2> /dev/null; then
                TURN=$folder/$n
                return 0
            fi
        done
        sleep 0.2
    done
    log::warn "no turn to pull after ${VERLJOB_PULL_TIMEOUT_S:-1800} s (VERLJOB_PULLS=${VERLJOB_PULLS:-16}): pulling without one"
}

pull_slots::give() {
    [[ -z $TURN ]] || rmdir -- "$TURN" || log::warn "the turn $TURN could not be given back"
    TURN=''
}
