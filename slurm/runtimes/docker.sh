# shellcheck shell=bash disable=SC2034 # its variables are read by node.sh
# Docker. dockerd runs its containers outside Slurm's cgroup, so every limit is set by flags.
# Sets: OCI_CLIENT, RUNTIME_ARGV.
OCI_CLIENT=docker
# shellcheck source=slurm/lib/runtime/oci.sh
source "$VERLJOB_HOME/slurm/lib/runtime/oci.sh"

runtime::available() {
    local socket=${DOCKER_HOST:-unix:///var/run/docker.sock}
    socket=${socket#unix://}
    command -v docker > /dev/null || fail 69 "there is no docker client on $HOST" "install it, or use another runtime: VERLJOB_RUNTIME"
    ! oci::query version --format '{{.Server.Version}}' || return 0
    [[ $RUNTIME_ERROR != *'ermission denied'* ]] || fail 77 "$(id -un) may not use Docker on $HOST: $socket belongs to group $(stat -c %G -- "$socket")" \
        "ask for membership in that group"
    fail 69 "Docker does not answer on $HOST: $RUNTIME_ERROR" "start dockerd on $HOST, or exclude the node: sbatch --exclude=$HOST"
}

runtime::start_argv() {
    oci::begin_run "$UID:${ACCOUNT_GIDS[0]}"
    oci::add_flag --group-add ${CONTAINER_GROUPS[@]+"${CONTAINER_GROUPS[@]}"}
    ((${#CONTAINER_GPUS[@]} == 0)) || RUNTIME_ARGV+=(--gpus "\"device=$(IFS=,; printf '%s' "${CONTAINER_GPUS[*]}")\"")
    oci::add_mounts
    oci::add_rights
    oci::add_ulimits
    oci::add_resources
    oci::end_run
}

runtime::registry_is_insecure() {
    oci::query info --format '{{range .RegistryConfig.IndexConfigs}}{{if not .Secure}}{{.Name}} {{end}}{{end}}' \
        && [[ " ${OCI_OUTPUT##*$'\n'} " == *" $1 "* ]]
}

runtime::unlimited() { :; }

runtime::remove() { oci::remove "$1" 'No such container'; }

runtime::list() { oci::list "$1" "{{.Label \"$1\"}}"; }

# The client prints its error in the line before its hint at --help.
runtime::start_error() { runtime::print_error "$1" 'docker: '; }

# Reads the engine's recent events, since the container itself is gone.
runtime::ran_out_of_memory() {
    oci::query events --since 10m --until 0s --filter "container=$1" --filter event=oom --format '{{.Action}}' && [[ -n $OCI_OUTPUT ]]
}
