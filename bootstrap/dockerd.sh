# shellcheck shell=bash
# A dockerd that this script starts if one is installed and none runs, and stops when the script ends.
# Sets: DOCKERD_PID.

readonly DOCKERD_FOLDER=$HERE/.build/dockerd
# The first start with a new data root takes a few seconds, longer on a slow disk.
readonly DOCKERD_START_S=60
readonly DOCKERD_STOP_S=30
DOCKERD_PID=''

# Starts dockerd and waits until it answers. Its data is in /var/lib/docker, or in VERLJOB_DOCKER_ROOT.
dockerd::start() {
    local -r log=$DOCKERD_FOLDER/log deadline=$((SECONDS + DOCKERD_START_S))
    local -a argv=(dockerd --pidfile "$DOCKERD_FOLDER/pid")
    [[ -z ${VERLJOB_DOCKER_ROOT:-} ]] || argv+=(--data-root "$VERLJOB_DOCKER_ROOT")
    [[ $(id -u) == 0 ]] || fail "no Docker engine answers; start it: sudo systemctl start docker"
    mkdir -p "$DOCKERD_FOLDER"
    dockerd::_remove_stale_pid
    say "no Docker engine answers: starting dockerd until $($LASTING && echo ./run testbed.down || echo this) ends (log: $log)"
    # In a session of its own, so that Ctrl-C in a terminal does not stop it before the cleanup that needs it.
    setsid "${argv[@]}" < /dev/null > "$log" 2>&1 &
    DOCKERD_PID=$!
    trap dockerd::stop EXIT
    trap 'exit 143' TERM HUP
    until engine::_answers; do
        if ! kill -0 "$DOCKERD_PID" 2> /dev/null || ((SECONDS >= deadline)); then
            tail -n 20 "$log" >&2
            fail "dockerd did not start within $DOCKERD_START_S s; the end of its log is above"
        fi
        sleep 0.2
    done
    ! $LASTING || dockerd::release
}

# Leaves the engine running when this script ends, for a cluster that stays up.
dockerd::release() {
    trap - EXIT TERM HUP
    DOCKERD_PID=''
}

# A killed dockerd leaves the PID of its containerd in a file, and the next dockerd would wait for that process.
dockerd::_remove_stale_pid() {
    local -r file=/run/docker/containerd/containerd.pid
    [[ -f $file ]] || return 0
    [[ -f /proc/$(< "$file")/comm && $(< "/proc/$(< "$file")/comm") == containerd ]] || rm -f "$file"
}

# Takes over the engine that an earlier testbed.up left running, so that it ends with this script.
dockerd::adopt() {
    local pid
    [[ -z $DOCKERD_PID && -f $DOCKERD_FOLDER/pid ]] || return 0
    pid=$(< "$DOCKERD_FOLDER/pid")
    [[ -f /proc/$pid/comm && $(< "/proc/$pid/comm") == dockerd ]] || return 0
    DOCKERD_PID=$pid
    trap dockerd::stop EXIT
}

# Stops the engine that this script started.
dockerd::stop() {
    local -r deadline=$((SECONDS + DOCKERD_STOP_S))
    trap '' INT TERM HUP
    kill -TERM "$DOCKERD_PID" 2> /dev/null || return 0 # it has already ended
    while kill -0 "$DOCKERD_PID" 2> /dev/null; do
        if ((SECONDS >= deadline)); then
            say "dockerd ($DOCKERD_PID) does not end within $DOCKERD_STOP_S s of TERM: killing it"
            kill -KILL "$DOCKERD_PID"
            return
        fi
        sleep 0.2
    done
}
