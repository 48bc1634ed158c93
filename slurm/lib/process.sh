# shellcheck shell=bash disable=SC2034 # what it sets is read by its callers
# Waiting for a child while signals may come. ENDING is the value of SECONDS when somebody asked the script to end, and
# empty until then; the scripts' traps set it.

# usage: process::await PID GRACE_S
# Waits for the child PID and sets PROCESS_CODE to its exit code. Returns 1 when the script was asked to end and the
# child is still there GRACE_S after that.
process::await() {
    local again=0
    PROCESS_CODE=0
    while kill -0 "$1" 2> /dev/null; do
        if [[ -z $ENDING ]]; then
            wait "$1" && PROCESS_CODE=0 || PROCESS_CODE=$? # a trapped signal interrupts it: look again
        elif ((SECONDS - ENDING < $2)); then
            sleep 0.1
        else
            return 1
        fi
    done
    wait "$1" 2> /dev/null || again=$? # 127: the code was already given out above
    ((again == 127)) || PROCESS_CODE=$again
}

# usage: process::run COMMAND…
# Runs a long command such as a pull so that a signal to this script is acted on at once.
process::run() {
    "$@" &
    PROCESS_RUNNING=$!
    if ! process::await "$PROCESS_RUNNING" 0; then
        kill -TERM "$PROCESS_RUNNING" 2> /dev/null || return 143 # it has just ended by itself
        return 143
    fi
    PROCESS_RUNNING=''
    return "$PROCESS_CODE"
}
