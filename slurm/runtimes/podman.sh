# shellcheck shell=bash disable=SC2034 # what it sets is read by node.sh
# Podman. It has no daemon: an account's containers are its own processes, and with --cgroups=disabled (which takes crun)
# they stay in the step's cgroup, where Slurm's limits hold for them and Slurm ends what is left.
OCI_CLIENT=podman
# shellcheck source=slurm/lib/oci.sh
source "$VERLJOB_HOME/slurm/lib/oci.sh"
# shellcheck source=slurm/lib/conmon.sh
source "$VERLJOB_HOME/slurm/lib/conmon.sh"
# shellcheck source=slurm/lib/podman_leave.sh
source "$VERLJOB_HOME/slurm/lib/podman_leave.sh"
# shellcheck source=slurm/lib/podman_scratch.sh
source "$VERLJOB_HOME/slurm/lib/podman_scratch.sh"

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

runtime::pull() { podman_scratch::with oci::bring pull --quiet "$1"; }

runtime::load() { podman_scratch::with oci::load "$1"; }

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
    conmon::look "$1"
    [[ -n $CONMON_INIT ]] && kill -s "$2" "$CONMON_INIT" 2> /dev/null
}

runtime::remove() {
    local -r deadline=$((SECONDS + 3))
    conmon::look "$1"
    while [[ -n $CONMON_BUSY ]] && ((SECONDS < deadline)); do
        [[ -z $CONMON_INIT ]] || kill -KILL "$CONMON_INIT" 2> /dev/null || : # it has just ended
        sleep 0.1
        conmon::look "$1"
    done
    oci::remove "$1" 'no such container' && runtime::leave
}

runtime::list() { oci::list "$1" "{{index .Labels \"$1\"}}"; }

runtime::last_words() { oci::words "$1" 'Error: '; }
