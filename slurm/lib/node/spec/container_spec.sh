# shellcheck shell=bash disable=SC2034,SC2153 # its variables are read by the runtime; HOST is node.sh's
# Describes the container of a node, for the runtime, and the account in it: the submitting user with all its groups.
# Sets: CONTAINER_IMAGE, CONTAINER_LABELS, CONTAINER_NAME, HOME, LOCAL, LOGNAME, TABLE, USER, VERLJOB_CONTAINER_BEGAN_MS.

# Sets everything that runtime::start_argv reads.
container_spec::make() {
    container_spec::_export_account
    CONTAINER_NAME=verljob-$UID-$SLURM_JOB_ID-$VERLJOB_ATTEMPT-$SLURM_NODEID
    CONTAINER_LABELS=("verljob.job=$SLURM_JOB_ID" "verljob.attempt=$VERLJOB_ATTEMPT" "verljob.user=$USER"
        "verljob.node=$HOST")
    if [[ -z ${LOCAL:-} ]]; then # a dry run
        LOCAL="<local folder>" VERLJOB_PORT_BLOCK='<first>-<last>' IMAGE_ID=$VERLJOB_IMAGE COMPILE_CACHE='<compile cache>'
        [[ ${VERLJOB_COMPILE_CACHE:-} != 0 ]] || COMPILE_CACHE=''
    fi
    CONTAINER_IMAGE=$IMAGE_ID
    export VERLJOB_CONTAINER_BEGAN_MS='' # set at the start of the container; its name is listed now
    profile::read "$VERLJOB_PROFILE" node
    env_table::read_platform
    # Lets debuggers attach to processes of the account, which some engines allow anyway.
    [[ -z ${VERLJOB_DEBUG:-} ]] || TABLE["capabilities"]="${TABLE["capabilities"]-} SYS_PTRACE"
    devices::collect
    resources::collect
    mounts::collect
    environment::collect
}

# For VERLJOB_DRY_RUN: prints the container's command and its variables, with secrets masked.
container_spec::print() {
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

# Exports USER, LOGNAME, and HOME if Slurm did not set it.
container_spec::_export_account() {
    USER=$(id -un 2> /dev/null) || USER=user$UID # the directory service does not answer
    LOGNAME=$USER
    [[ -n ${HOME:-} ]] || { HOME=$(getent passwd "$UID") && HOME=${HOME%:*} && HOME=${HOME##*:}; }
    [[ $HOME == /?* ]] || HOME=/home/$USER # an account whose home is / gets an empty home
    export HOME USER LOGNAME
}

# usage: container_spec::write_account FOLDER
# Writes passwd and group into FOLDER.
container_spec::write_account() {
    {
        printf 'root:x:0:0:root:/root:/bin/bash\n'
        ((UID == 0)) || printf '%s:x:%d:%d::%s:/bin/bash\n' "$USER" "$UID" "${ACCOUNT_GIDS[0]}" "$HOME"
    } > "$1/passwd"
    container_spec::_print_groups > "$1/group"
}

container_spec::_print_groups() {
    local gid name
    printf 'root:x:0:\n'
    for gid in "${ACCOUNT_GIDS[@]}"; do
        ((gid != 0)) || continue
        name=$(getent group "$gid") || name=group$gid
        printf '%s:x:%d:%s\n' "${name%%:*}" "$gid" "$USER"
    done
}
