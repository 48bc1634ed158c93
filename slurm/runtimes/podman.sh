# shellcheck shell=bash disable=SC2034 # what it sets is read by node.sh
# Podman. It has no daemon: an account's containers are its own processes, and with --cgroups=disabled (which takes crun)
# they stay in the step's cgroup, where Slurm's limits hold for them and Slurm ends what is left.
# Sets: CONMON_BUSY, CONMON_INIT, CONMON_OTHERS, CONMON_PID, OCI_CLIENT, PODMAN_IMAGES, PODMAN_PAUSE, PODMAN_SCRATCH,
#   RUNTIME_ARGV, RUNTIME_SAID, USER.
OCI_CLIENT=podman
# shellcheck source=slurm/lib/runtime/oci.sh
source "$VERLJOB_HOME/slurm/lib/runtime/oci.sh"

# File systems on which an account's images cannot lie, as stat tells them (containers-storage refuses or corrupts them).
readonly PODMAN_NOT_ON=' nfs nfs4 lustre gpfs beegfs fhgfs cifs smb2 ceph afs panfs '

# One that came along from the login node is not here, and podman would fail on it.
[[ -d ${XDG_RUNTIME_DIR:-} && -O $XDG_RUNTIME_DIR ]] || unset XDG_RUNTIME_DIR
# Its images may lie in a folder of that name: the same one for all that is asked here.
export USER=${USER:-$(id -un)}

runtime::available() {
    local kind
    command -v podman > /dev/null || fail 69 "there is no podman on $HOST" "install it, or use another runtime: VERLJOB_RUNTIME"
    podman::_look || fail 69 "podman does not work on $HOST: $RUNTIME_SAID" \
        "run podman info there as $(id -un), see docs/runtimes.md, or exclude the node: sbatch --exclude=$HOST"
    kind=$(stat --file-system --format=%T -- "$PODMAN_IMAGES")
    [[ $PODMAN_NOT_ON != *" $kind "* ]] || fail 69 "podman would keep its images on $HOST in $PODMAN_IMAGES, which is $kind" \
        "set rootless_storage_path in storage.conf to a folder of the node's own disk: docs/runtimes.md"
}

# Sets PODMAN_IMAGES, the folder of the account's images, and PODMAN_PAUSE, the file that names the process of leave.
podman::_look() {
    local lines
    oci::ask info --format $'{{.Host.RemoteSocket.Path}}\n{{.Store.GraphRoot}}' || return 1
    PODMAN_IMAGES=${OCI_ANSWER##*$'\n'} # below any warning
    lines=${OCI_ANSWER%$'\n'*}
    PODMAN_PAUSE=${lines##*$'\n'}
    PODMAN_PAUSE=${PODMAN_PAUSE%/podman/podman.sock}/libpod/tmp/pause.pid
}

runtime::insecure() {
    oci::ask info --format '{{json .Registries}}' && [[ ${OCI_ANSWER//[[:space:]]/} =~ \""$1"\":\{[^\}]*\"Insecure\":true ]]
}

runtime::pull() { podman::_with_scratch oci::bring pull --quiet "$1"; }

runtime::load() { podman::_with_scratch oci::load "$1"; }

runtime::start_argv() {
    local name
    local -r CONTAINER_IMAGE=${CONTAINER_IMAGE#sha256:} # which podman takes for a registry's name
    oci::run 0:0 # the account's own number outside; keep-id would copy every layer of the image to change its owner
    if ((UID == 0)); then podman::_as_root; else podman::_as_account; fi
    oci::each --device ${CONTAINER_GPUS[@]+"${CONTAINER_GPUS[@]/#/nvidia.com/gpu=}"}
    oci::mounts
    oci::rights
    for name in "${CONTAINER_ENV[@]}"; do [[ -n ${!name+set} ]] || RUNTIME_ARGV+=(--unsetenv "$name"); done
    oci::node
}

podman::_as_root() {
    oci::each --group-add ${CONTAINER_GROUPS[@]+"${CONTAINER_GROUPS[@]}"}
    oci::limits
    oci::shares
}

# An account keeps its own groups and limits, among them node.sh's own of no core; it can take on no others.
podman::_as_account() { RUNTIME_ARGV+=(--group-add keep-groups --cgroups disabled --ulimit host); }

runtime::unlimited() { ((UID == 0)) || printf 'cpus memory pids ulimits\n'; }

# The container's processes are this account's: they are signalled without podman, whose every command takes a second on a
# busy node, and which gives a container ten to end. conmon then has podman remove it.
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
    oci::remove "$1" 'no such container' && runtime::leave
}

runtime::list() { oci::list "$1" "{{index .Labels \"$1\"}}"; }

runtime::last_words() { oci::words "$1" 'Error: '; }

# usage: podman::_conmon_pid FILE
# Sets CONMON_PID to the process that a file of podman's names: -1 would be every process of the account. File, folder and
# process are the account's own, or it returns 1; so nobody else can put a FIFO there, which would hang.
podman::_conmon_pid() {
    CONMON_PID=''
    [[ -f $1 && ! -L $1 && -O $1 && -O ${1%/*} ]] || return 1
    { read -r CONMON_PID < "$1"; } 2> /dev/null || [[ -n $CONMON_PID ]] || return 1
    [[ $CONMON_PID =~ ^[1-9][0-9]*$ && -O /proc/$CONMON_PID ]]
}

# usage: podman::_find_conmon NAME
# Looks at the account's own processes: anybody may give his any command line. Sets CONMON_BUSY when the container's conmon
# is there, or a podman that tidies up after one (it would start the process of leave again); CONMON_INIT to its first
# process; CONMON_OTHERS when this account has others.
podman::_find_conmon() {
    local folder item last name pidfile
    local -a words
    CONMON_BUSY='' CONMON_INIT='' CONMON_OTHERS=''
    for folder in /proc/[1-9]*; do
        [[ -O $folder ]] || continue
        words=() last='' name='' pidfile=''
        while IFS= read -r -d '' item; do words+=("$item"); done 2> /dev/null < "$folder/cmdline" || continue # it has ended
        [[ " ${words[*]-} " != *' container cleanup '* ]] || CONMON_BUSY=yes
        [[ ${words[0]-} == */conmon ]] || continue
        for item in "${words[@]}"; do
            case $last in -n) name=$item ;; -p) pidfile=$item ;; esac
            last=$item
        done
        if [[ $name == "$1" ]]; then
            CONMON_BUSY=yes
            ! podman::_conmon_pid "$pidfile" || CONMON_INIT=$CONMON_PID # else it has not started yet
        else
            CONMON_OTHERS=yes
        fi
    done
}

# Removes what podman keeps on a node between two commands; nothing while another container of the account's is there, which joins that process.
runtime::leave() {
    podman::_find_conmon ''
    [[ -z $CONMON_OTHERS ]] || return 0
    ((UID == 0)) || podman::_end_pause
    podman::_remove_mount_points
}

# The process that holds the account's namespaces between two commands; a later command starts another.
podman::_end_pause() {
    [[ -n ${PODMAN_PAUSE:-} ]] || podman::_look || return 0
    ! podman::_conmon_pid "$PODMAN_PAUSE" || kill -KILL "$CONMON_PID" 2> /dev/null || : # it has just ended
}

# Empty files over which crun mounts itself for a moment when it starts (try_bindfd in its cloned_binary.c); one that Slurm's
# signal ended just then left its own. A crun that misses it makes a copy of itself instead.
podman::_remove_mount_points() {
    local file
    for file in /tmp/crun.??????; do
        [[ ! -f $file || -L $file || ! -O $file || -s $file ]] || rm -f -- "$file"
    done
}

# usage: podman::_with_scratch COMMAND…
# Runs it with a TMPDIR of its own: a podman that is killed leaves there what it was pulling or loading.
podman::_with_scratch() {
    local code=0
    podman::_sweep_scratch "${TMPDIR:-/var/tmp}"
    PODMAN_SCRATCH=$(mktemp --directory -- "${TMPDIR:-/var/tmp}/verljob-pull.XXXXXX" 2>&1) || {
        RUNTIME_SAID="$PODMAN_SCRATCH: podman unpacks there, set TMPDIR to a folder of this node with room for the image"
        return 1
    }
    TMPDIR=$PODMAN_SCRATCH "$@" || code=$?
    podman::_remove_scratch
    return "$code"
}

# One that was asked to end may still write.
podman::_remove_scratch() {
    local attempt
    for attempt in 1 2 3 4 5; do
        rm -rf -- "$PODMAN_SCRATCH" 2> /dev/null || : # looked at next
        [[ -e $PODMAN_SCRATCH ]] || return 0
        sleep 0.2
    done
    log::warn "could not remove $PODMAN_SCRATCH"
}

# usage: podman::_sweep_scratch PARENT
# Removes what our own killed launches left: no pull takes longer than its limit.
podman::_sweep_scratch() {
    local folder now made
    printf -v now '%(%s)T' -1
    for folder in "$1"/verljob-pull.*; do
        [[ -d $folder && ! -L $folder && -O $folder ]] || continue
        made=$(stat -c %Y -- "$folder") || continue # it has just gone
        ((now - made <= OCI_BRING_LIMIT_S)) || rm -rf -- "$folder"
    done
}
