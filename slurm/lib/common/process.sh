# shellcheck shell=bash disable=SC2034 # what it sets is read by its callers
# Waiting for a child while signals may come. ENDING is the value of SECONDS when somebody asked the script to end, and
# empty until then; the scripts' traps set it.
# Sets: NOW_MS, PROCESS_CODE, PROCESS_RUNNING.

# usage: process::await PID GRACE_S [LOOK]
# Waits for the child PID and sets PROCESS_CODE to its exit code. Returns 1 when the script was asked to end and the
# child is still there GRACE_S after that, or when LOOK, which is called with PID every second, gives it up; PROCESS_CODE
# is empty then.
process::await() {
    PROCESS_CODE=''
    local looked=$SECONDS
    hash sleep # what bash has to look for in PATH makes it look at the working folder, whose server may not answer
    while kill -0 "$1" 2> /dev/null; do
        if [[ -n $ENDING ]]; then
            ((SECONDS - ENDING < $2)) || return 1
            sleep 0.1
        elif [[ -z ${3:-} ]]; then
            wait "$1" || : # a trapped signal interrupts it: look again
        else
            process::_pause
            ((SECONDS != looked)) || continue # SECONDS goes back with the clock: no look would be due for that long
            looked=$SECONDS
            "$3" "$1" || return 1
        fi
    done
    process::_code "$1"
}

# A third of a second. A trap waits for the end of a command in the foreground, and `wait`, which it would interrupt, loses a
# child that ends in that moment: bash 5.2.15 lost one of eight that a TERM ended together with it. `read -t` in a shell
# with traps aborts some versions ("longjmp causes uninitialized stack frame"). It holds nothing open: neither the lease nor
# a lock nor an output.
process::_pause() {
    sleep 0.33 > /dev/null 2>&1 3>&- 4>&- 7>&- 8>&- 9>&- || : # Slurm's signal goes to every process of the step
}

# usage: process::_code PID
# Sets PROCESS_CODE to that of a child that has ended; to 143 for one that bash lost to a signal that was trapped while it
# waited. bash takes that one for alive, and `wait` would not return before the last of the other children has ended.
process::_code() {
    local code attempt
    PROCESS_CODE=''
    for attempt in 1 2 3; do
        [[ $'\n'$(jobs -r -p)$'\n' != *$'\n'"$1"$'\n'* ]] || { PROCESS_CODE=143; return 0; }
        wait "$1" 2> /dev/null && code=0 || code=$?
        [[ $code != 127 || -z $PROCESS_CODE ]] || return 0 # some versions of bash give it out once
        [[ $code != "$PROCESS_CODE" ]] || return 0
        PROCESS_CODE=$code
        ((code > 128)) || return 0 # else a signal may have interrupted this very wait
    done
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
