# shellcheck shell=bash disable=SC2034 # what it sets is read by its callers
# Waits for a child process while signals may arrive. ENDING is empty until a trap of the script sets it to the value of
# SECONDS at which the script was told to stop.
# Sets: NOW_MS, PROCESS_CODE, PROCESS_RUNNING.

# usage: process::await PID GRACE_S [CHECK]
# Waits for the child PID and sets PROCESS_CODE to its exit code. Returns 1, with an empty PROCESS_CODE, if the child
# still runs GRACE_S after ENDING was set, or if CHECK fails. CHECK is called with PID once a second.
process::await() {
    PROCESS_CODE=''
    local checked=$SECONDS
    hash sleep # a search in PATH makes bash access the working folder, whose file server may hang
    while kill -0 "$1" 2> /dev/null; do
        if [[ -n $ENDING ]]; then
            ((SECONDS - ENDING < $2)) || return 1
            sleep 0.1
        elif [[ -z ${3:-} ]]; then
            wait "$1" || : # a trapped signal interrupts it: test again
        else
            process::_pause
            ((SECONDS != checked)) || continue # not `>`: if the clock is set back, no check would be due for that long
            checked=$SECONDS
            "$3" "$1" || return 1
        fi
    done
    process::_read_code "$1"
}

# Sleeps for a third of a second. Not `wait`: bash 5.2.15 lost one of eight children that ended at the moment at which a
# TERM interrupted it. Not `read -t`: in a shell with traps it aborts some versions ("longjmp causes uninitialized stack
# frame"). The sleep inherits no output, lock or lease.
process::_pause() {
    sleep 0.33 > /dev/null 2>&1 3>&- 4>&- 7>&- 8>&- 9>&- || : # Slurm's signal goes to every process of the step
}

# usage: process::_read_code PID
# Sets PROCESS_CODE to the exit code of a child that has ended, or to 143 if a trapped signal made bash lose it. bash
# lists a lost child as running, and `wait` would block until all other children have ended.
process::_read_code() {
    local code attempt
    PROCESS_CODE=''
    for attempt in 1 2 3; do
        [[ $'\n'$(jobs -r -p)$'\n' != *$'\n'"$1"$'\n'* ]] || { PROCESS_CODE=143; return 0; }
        wait "$1" 2> /dev/null && code=0 || code=$?
        [[ $code != 127 || -z $PROCESS_CODE ]] || return 0 # some versions of bash return it only once
        [[ $code != "$PROCESS_CODE" ]] || return 0
        PROCESS_CODE=$code
        ((code > 128)) || return 0 # else a signal may have interrupted this `wait`
    done
}

# usage: process::is_stopped PID
# Tests for state T (SIGSTOP) without a fork: this runs every second.
process::is_stopped() {
    local line=''
    { read -r line < "/proc/$1/stat"; } 2> /dev/null || return 1
    [[ ${line##*) } == T* ]]
}

# Sets NOW_MS, milliseconds since the epoch; bash before 5.0 has no clock and runs `date`.
process::now() {
    local -r clock=${EPOCHREALTIME:-}
    if [[ -n $clock ]]; then
        NOW_MS=${clock//[!0-9]/} NOW_MS=${NOW_MS%???}
    else
        NOW_MS=$(date +%s%3N)
    fi
}

# usage: process::run COMMAND…
# Runs a long command, such as a pull, so that a signal to this script ends it at once.
process::run() {
    "$@" &
    PROCESS_RUNNING=$!
    if ! process::await "$PROCESS_RUNNING" 0; then
        kill -TERM "$PROCESS_RUNNING" 2> /dev/null || : # it has just ended
        return 143
    fi
    PROCESS_RUNNING=''
    return "$PROCESS_CODE"
}
