# shellcheck shell=bash
# An engine of our own, where one is installed and nobody has started it; it ends with the script.

readonly DOCKERD_FOLDER=$HERE/.build/dockerd
# The first start on a new data root takes a few seconds, on a slow disk more.
readonly DOCKERD_START_S=60
readonly DOCKERD_STOP_S=30
DOCKERD_PID=''

# Starts dockerd and waits until it answers. Its data stays in /var/lib/docker, or in VERLJOB_DOCKER_ROOT.
dockerd::start() {
    local -r log=$DOCKERD_FOLDER/log deadline=$((SECONDS + DOCKERD_START_S))
    local -a argv=(dockerd --pidfile "$DOCKERD_FOLDER/pid")
    [[ -z ${VERLJOB_DOCKER_ROOT:-} ]] || argv+=(--data-root "$VERLJOB_DOCKER_ROOT")
    [[ $(id -u) == 0 ]] || give_up "no Docker engine answers; start it: sudo systemctl start docker"
    mkdir -p "$DOCKERD_FOLDER"
    dockerd::_forget_containerd
    say "no Docker engine answers: starting dockerd until $($LASTING && echo ./run testbed.down || echo this) ends (log: $log)"
    # A session of its own, so that a terminal's Ctrl-C does not take it away from those who clean up.
    setsid "${argv[@]}" < /dev/null > "$log" 2>&1 &
    DOCKERD_PID=$!
    trap dockerd::stop EXIT
    trap 'exit 143' TERM HUP
    until engine::_answers; do
        if ! kill -0 "$DOCKERD_PID" 2> /dev/null || ((SECONDS >= deadline)); then
            tail -n 20 "$log" >&2
            give_up "dockerd did not start within $DOCKERD_START_S s; its words are above"
        fi
        sleep 0.2
    done
    ! $LASTING || dockerd::release
}

# Leaves the engine running, for a cluster that was asked to stay.
dockerd::release() {
    trap - EXIT TERM HUP
    DOCKERD_PID=''
}

# A dockerd that was killed leaves the number of its containerd behind, and the next one waits for that process.
dockerd::_forget_containerd() {
    local -r file=/run/docker/containerd/containerd.pid
    [[ -f $file ]] || return 0
    [[ -f /proc/$(< "$file")/comm && $(< "/proc/$(< "$file")/comm") == containerd ]] || rm -f "$file"
}

# Makes the engine that an earlier testbed.up left running the one that ends with this script.
dockerd::adopt() {
    local pid
    [[ -z $DOCKERD_PID && -f $DOCKERD_FOLDER/pid ]] || return 0
    pid=$(< "$DOCKERD_FOLDER/pid")
    [[ -f /proc/$pid/comm && $(< "/proc/$pid/comm") == dockerd ]] || return 0
    DOCKERD_PID=$pid
    trap dockerd::stop EXIT
}

# Ends the engine that was started here.
dockerd::stop() {
    local -r deadline=$((SECONDS + DOCKERD_STOP_S))
    trap '' INT TERM HUP
    kill -TERM "$DOCKERD_PID" 2> /dev/null || return 0 # it has ended by itself
    while kill -0 "$DOCKERD_PID" 2> /dev/null; do
        if ((SECONDS >= deadline)); then
            say "dockerd ($DOCKERD_PID) does not end within $DOCKERD_STOP_S s of TERM: killing it"
            kill -KILL "$DOCKERD_PID"
            return
        fi
        sleep 0.2
    done
}
