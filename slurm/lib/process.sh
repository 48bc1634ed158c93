# shellcheck shell=bash disable=SC2034 # what it sets is read by its callers
# Waiting for a child while signals may come. ENDING is the value of SECONDS when somebody asked the script to end, and
# empty until then; the scripts' traps set it.

# usage: process::await PID GRACE_S [LOOK]
# Waits for the child PID and sets PROCESS_CODE to its exit code. Returns 1 when the script was asked to end and the
# child is still there GRACE_S after that, or when LOOK, which is called with PID every second, gives it up.
process::await() {
    local again=0
    PROCESS_CODE=0
    [[ -z ${3:-} ]] || process::_tick
    while kill -0 "$1" 2> /dev/null; do
        if [[ -n $ENDING ]]; then
            ((SECONDS - ENDING < $2)) || return 1
            sleep 0.1
        else
            wait "$1" && PROCESS_CODE=0 || PROCESS_CODE=$? # a trapped signal interrupts it: look again
            [[ -z ${3:-} ]] || "$3" "$1" || return 1
        fi
    done
    wait "$1" 2> /dev/null || again=$? # 127: the code was already given out above
    ((again == 127)) || PROCESS_CODE=$again
}

# Interrupts `wait` every second by USR2, as long as this shell lives. A process of its own, since `read -t` in a shell
# with traps aborts some versions of bash ("longjmp causes uninitialized stack frame", seen with 5.2.15). It holds
# nothing open: neither the lease nor a lock nor somebody's output.
process::_tick() {
    [[ -z ${PROCESS_TICKER:-} ]] || return 0
    trap : USR2
    (
        exec 0<> <(:) # open at both ends: nothing comes, and it does not end
        while ! read -r -t 1; do kill -USR2 "$$" || exit 0; done
    ) > /dev/null 2>&1 3>&- 4>&- 7>&- 8>&- 9>&- &
    PROCESS_TICKER=$!
    disown
}

# Safe to call without a ticker.
process::end_ticks() {
    [[ -z ${PROCESS_TICKER:-} ]] || kill "$PROCESS_TICKER" 2> /dev/null || : # it dies with the step's other processes
}

# usage: process::stopped PID
# Whether somebody stopped it (SIGSTOP). Nothing is forked: this is asked every second.
process::stopped() {
    local line=''
    { read -r line < "/proc/$1/stat"; } 2> /dev/null || return 1
    [[ ${line##*) } == T* ]]
}

# Sets NOW_MS, milliseconds of the epoch; bash has a clock of its own since 5.0.
process::now() {
    local -r clock=${EPOCHREALTIME:-}
    if [[ -n $clock ]]; then
        NOW_MS=${clock//[!0-9]/} NOW_MS=${NOW_MS%???}
    else
        NOW_MS=$(date +%s%3N)
    fi
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
