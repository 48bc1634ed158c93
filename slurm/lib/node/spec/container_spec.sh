# shellcheck shell=bash disable=SC2034,SC2153 # what it sets is read by the runtime; HOST is node.sh's
# Describes the container of a node; the runtime makes a command of it.
# Sets: CONTAINER_IMAGE, CONTAINER_LABELS, CONTAINER_NAME, LOCAL, TABLE, VERLJOB_CONTAINER_BEGAN_MS.

# Sets everything that runtime::start_argv reads. CONTAINER_… are this toolkit's words, no runtime's.
container_spec::make() {
    account::identity
    CONTAINER_NAME=verljob-$UID-$SLURM_JOB_ID-$VERLJOB_ATTEMPT-$SLURM_NODEID
    CONTAINER_LABELS=("verljob.job=$SLURM_JOB_ID" "verljob.attempt=$VERLJOB_ATTEMPT" "verljob.user=$USER"
        "verljob.node=$HOST")
    [[ -n ${LOCAL:-} ]] || LOCAL="<local folder>" VERLJOB_PORT_BLOCK='<first>-<last>' IMAGE_ID=$VERLJOB_IMAGE
    CONTAINER_IMAGE=$IMAGE_ID
    export VERLJOB_CONTAINER_BEGAN_MS='' # known at the last moment; the name is listed now
    env_table::profile "$VERLJOB_PROFILE"
    env_table::platform
    container_spec::_debugger_rights
    devices::collect
    resources::collect
    mounts::collect
    environment::collect
}

# For VERLJOB_DRY_RUN: the container's command, and what the container sees, with the secrets masked.
container_spec::show() {
    local name
    trap '[[ -z ${VERDICT[code]:-} ]] || verdict::sentence >&2' EXIT
    container_spec::make
    runtime::start_argv
    log::command "${RUNTIME_ARGV[@]}"
    printf '# its environment\n'
    for name in "${CONTAINER_ENV[@]}"; do
        if [[ -z ${!name+set} ]]; then
            printf '%s is removed\n' "$name"
        else
            printf '%s=%s\n' "$name" "${!name}"
        fi
    done
    for name in ${SECRET_NAMES[@]+"${SECRET_NAMES[@]}"}; do printf '%s=***\n' "$name"; done
}

# Lets processes of the account read one another, as debuggers do; where the engine's own profile already does, nothing changes.
container_spec::_debugger_rights() {
    [[ -z ${VERLJOB_DEBUG:-} ]] || TABLE["capabilities"]="${TABLE["capabilities"]-} SYS_PTRACE"
}
