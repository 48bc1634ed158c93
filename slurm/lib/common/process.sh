# shellcheck shell=bash disable=SC2034 # its variables are read by its callers
# Waits for a child process while signals may arrive. A trap of the script sets ENDING to the SECONDS at which it got TERM.
# Sets: NOW_MS, PROCESS_CODE, PROCESS_RUNNING.

# usage: process::await PID GRACE_S [CHECK]
# Waits for a child and sets PROCESS_CODE to its exit code. Returns 1, with an empty PROCESS_CODE, if it still runs GRACE_S
# after ENDING, or if CHECK, called with PID every second, fails.
process::await() {
    PROCESS_CODE=''
    local checked=$SECONDS
    hash sleep # a search in PATH accesses the working folder, whose file server may hang
    while kill -0 "$1" 2> /dev/null; do
        if [[ -n $ENDING ]]; then
            ((SECONDS - ENDING < $2)) || return 1
            sleep 0.1
        elif [[ -z ${3:-} ]]; then
            wait "$1" || : # a trapped signal interrupts it: test again
        else
            process::_pause
            ((SECONDS != checked)) || continue # not `>`: the clock may be set back
            checked=$SECONDS
            "$3" "$1" || return 1
        fi
    done
    process::_read_code "$1"
}

# Sleeps for a third of a second, without inheriting an output, a lock or the lease. Not by `wait`: bash 5.2.15 lost one of
# eight children that ended while TERM interrupted it. Not by `read -t`, which aborts some versions in a shell with traps
# ("longjmp causes uninitialized stack frame").
process::_pause() {
    sleep 0.33 > /dev/null 2>&1 3>&- 4>&- 7>&- 8>&- 9>&- || : # Slurm's signal goes to every process of the step
}

# usage: process::_read_code PID
# Sets PROCESS_CODE to the exit code of an ended child, or to 143 if a trapped signal made bash lose it: bash lists a lost
# child as running, and `wait` would block until all others have ended.
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
# Tests for state T (SIGSTOP), without a fork.
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
# Runs a long command, which a signal to this script ends at once.
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

# usage: process::kill_found FIND FILE
# Kills the processes that FIND sets in FOUND_PROCESSES, until a search finds none; returns 1 if some do not end.
process::kill_found() {
    local -r until=$((SECONDS + (${#ENDING} ? 2 : 5))) # after TERM the whole node has 5 s
    while "$1" "$2"; do
        ((SECONDS < until)) || return 1
        kill -KILL "${FOUND_PROCESSES[@]}" 2> /dev/null || : # some may have just ended
        sleep 0.1
    done
}
