# shellcheck shell=bash disable=SC2034 # its variables are read by node.sh
# Podman, without a daemon: an account's containers are its own processes. With --cgroups=disabled (which needs crun) they
# stay in the step's cgroup, where Slurm's limits apply.
# Sets: CONMON_BUSY, CONMON_INIT, CONMON_OTHERS, CONMON_PID, OCI_CLIENT, PODMAN_IMAGES, PODMAN_PAUSE, RUNTIME_ARGV,
#   USER.
OCI_CLIENT=podman
# shellcheck source=slurm/lib/runtime/oci.sh
source "$VERLJOB_HOME/slurm/lib/runtime/oci.sh"
# shellcheck source=slurm/lib/runtime/pull_tmpdir.sh
source "$VERLJOB_HOME/slurm/lib/runtime/pull_tmpdir.sh"

# File systems that cannot hold an account's images, as stat names them (containers-storage refuses or corrupts them).
readonly PODMAN_NOT_ON=' nfs nfs4 lustre gpfs beegfs fhgfs cifs smb2 ceph afs panfs '

# A path inherited from the login node may not exist on this node, and podman would fail.
[[ -d ${XDG_RUNTIME_DIR:-} && -O $XDG_RUNTIME_DIR ]] || unset XDG_RUNTIME_DIR
# storage.conf may contain $USER: every command must expand it to the same folder.
export USER=${USER:-$(id -un)}

runtime::available() {
    local kind
    command -v podman > /dev/null || fail 69 "there is no podman on $HOST" "install it, or use another runtime: VERLJOB_RUNTIME"
    podman::_read_info || fail 69 "podman does not work on $HOST: $RUNTIME_ERROR" \
        "run podman info on $HOST as $(id -un), see docs/runtimes.md, or exclude the node: sbatch --exclude=$HOST"
    kind=$(stat --file-system --format=%T -- "$PODMAN_IMAGES")
    [[ $PODMAN_NOT_ON != *" $kind "* ]] || fail 69 "podman would keep its images on $HOST in $PODMAN_IMAGES, which is $kind" \
        "set rootless_storage_path in storage.conf to a folder of the node's own disk: docs/runtimes.md"
}

# Sets PODMAN_IMAGES, the folder of the account's images, and PODMAN_PAUSE, the pid file of the pause process.
podman::_read_info() {
    local lines
    oci::query info --format $'{{.Host.RemoteSocket.Path}}\n{{.Store.GraphRoot}}' || return 1
    PODMAN_IMAGES=${OCI_OUTPUT##*$'\n'} # below any warning
    lines=${OCI_OUTPUT%$'\n'*}
    PODMAN_PAUSE=${lines##*$'\n'}
    PODMAN_PAUSE=${PODMAN_PAUSE%/podman/podman.sock}/libpod/tmp/pause.pid
}

runtime::registry_is_insecure() {
    oci::query info --format '{{json .Registries}}' && [[ ${OCI_OUTPUT//[[:space:]]/} =~ \""$1"\":\{[^\}]*\"Insecure\":true ]]
}

runtime::pull() { podman::_with_tmpdir oci::run_long pull --quiet "$1"; }

runtime::load() { podman::_with_tmpdir oci::load "$1"; }

# usage: podman::_with_tmpdir COMMAND…
# Without a XDG_RUNTIME_DIR podman 5 would make one in the temporary TMPDIR, and a second pause process.
podman::_with_tmpdir() { XDG_RUNTIME_DIR=${PODMAN_PAUSE%/libpod/tmp/pause.pid} pull_tmpdir::run "${TMPDIR:-/var/tmp}" "$@"; }

runtime::start_argv() {
    local name
    local -r CONTAINER_IMAGE=${CONTAINER_IMAGE#sha256:} # podman would read the prefix as a registry's name
    oci::begin_run 0:0 # outside it is the account's own number; keep-id would copy every layer to change its owner
    if ((UID == 0)); then
        oci::add_flag --group-add ${CONTAINER_GROUPS[@]+"${CONTAINER_GROUPS[@]}"}
        oci::add_ulimits
        oci::add_resources
    else
        # An account can only keep its groups and limits, among them node.sh's own of no core dumps.
        RUNTIME_ARGV+=(--group-add keep-groups --cgroups disabled --ulimit host)
    fi
    oci::add_flag --device ${CONTAINER_GPUS[@]+"${CONTAINER_GPUS[@]/#/nvidia.com/gpu=}"}
    oci::add_mounts
    oci::add_rights
    for name in "${CONTAINER_ENV[@]}"; do [[ -n ${!name+set} ]] || RUNTIME_ARGV+=(--unsetenv "$name"); done
    oci::end_run
}

runtime::unlimited() { ((UID == 0)) || printf 'cpus memory pids ulimits\n'; }

# Signals the container's init directly: a command of podman takes a second on a busy node, and podman waits ten for a
# container to end. conmon then makes podman remove it.
runtime::signal() {
    podman::_find_conmon "$1"
    [[ -n $CONMON_INIT ]] && kill -s "$2" "$CONMON_INIT" 2> /dev/null
}

runtime::remove() {
    local -r deadline=$((SECONDS + 3))
    podman::_find_conmon "$1"
    while [[ -n $CONMON_BUSY ]] && ((SECONDS < deadline)); do
        [[ -z $CONMON_INIT ]] || kill -KILL "$CONMON_INIT" 2> /dev/null || : # it has just ended
        sleep 0.1
        podman::_find_conmon "$1"
    done
    oci::remove "$1" 'no such container' && runtime::cleanup
}

runtime::list() { oci::list "$1" "{{index .Labels \"$1\"}}"; }

runtime::start_error() { runtime::print_error "$1" 'Error: '; }

# usage: podman::_read_pid_file FILE
# Sets CONMON_PID to the process in a pid file (-1 would be all of the account). Returns 1 unless this account owns file,
# folder and process; so no other account can put a FIFO there, which would block.
podman::_read_pid_file() {
    CONMON_PID=''
    [[ -f $1 && ! -L $1 && -O $1 && -O ${1%/*} ]] || return 1
    { read -r CONMON_PID < "$1"; } 2> /dev/null || [[ -n $CONMON_PID ]] || return 1
    [[ $CONMON_PID =~ ^[1-9][0-9]*$ && -O /proc/$CONMON_PID ]]
}

# usage: podman::_find_conmon NAME
# Searches this account's processes only, since any account may use any command line. Sets CONMON_BUSY if the container's
# conmon runs, or a `podman container cleanup`, which starts the pause process again; CONMON_INIT to the container's first
# process; CONMON_OTHERS if other containers of the account run.
podman::_find_conmon() {
    local folder item last name pidfile
    local -a argv
    CONMON_BUSY='' CONMON_INIT='' CONMON_OTHERS=''
    for folder in /proc/[1-9]*; do
        [[ -O $folder ]] || continue
        argv=() last='' name='' pidfile=''
        while IFS= read -r -d '' item; do argv+=("$item"); done 2> /dev/null < "$folder/cmdline" || continue # it has ended
        [[ " ${argv[*]-} " != *' container cleanup '* ]] || CONMON_BUSY=yes
        [[ ${argv[0]-} == */conmon ]] || continue
        for item in "${argv[@]}"; do
            case $last in -n) name=$item ;; -p) pidfile=$item ;; esac
            last=$item
        done
        if [[ $name == "$1" ]]; then
            CONMON_BUSY=yes
            ! podman::_read_pid_file "$pidfile" || CONMON_INIT=$CONMON_PID # else it has not started yet
        else
            CONMON_OTHERS=yes
        fi
    done
}

# Removes what podman leaves on a node between two commands, unless the account runs another container, which uses it.
runtime::cleanup() {
    podman::_find_conmon ''
    [[ -z $CONMON_OTHERS ]] || return 0
    ((UID == 0)) || podman::_kill_pause_process
    podman::_remove_mount_points
}

# The pause process holds the account's namespaces between two commands; the next command starts another.
podman::_kill_pause_process() {
    [[ -n ${PODMAN_PAUSE:-} ]] || podman::_read_info || return 0
    ! podman::_read_pid_file "$PODMAN_PAUSE" || kill -KILL "$CONMON_PID" 2> /dev/null || : # it has just ended
}

# Removes empty files over which a starting crun mounts itself (try_bindfd in its cloned_binary.c), if a signal kept it from
# that. A crun that misses its file makes a copy of itself instead.
podman::_remove_mount_points() {
    local file
    for file in /tmp/crun.??????; do
        [[ ! -f $file || -L $file || ! -O $file || -s $file ]] || rm -f -- "$file"
    done
}
