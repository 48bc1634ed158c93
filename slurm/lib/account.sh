# shellcheck shell=bash
# Who the container runs as: the submitting account with all its groups, known by name inside too.

# Values of these never appear in a command: they travel in a file, 0600.
readonly ACCOUNT_SECRETS='HF_TOKEN HUGGING_FACE_HUB_TOKEN WANDB_API_KEY SWANLAB_API_KEY MLFLOW_TRACKING_TOKEN
    MLFLOW_TRACKING_PASSWORD AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN OPENAI_API_KEY GITHUB_TOKEN'

# Sets and exports HOME, USER and LOGNAME where Slurm did not, and SECRET_NAMES (more: VERLJOB_SECRET_NAMES=NAME,NAME).
account::identity() {
    local name
    local -r more=${VERLJOB_SECRET_NAMES:-}
    USER=$(id -un 2> /dev/null) || USER=user$UID # a number that the directory service does not know just now
    LOGNAME=$USER
    [[ -n ${HOME:-} ]] || { HOME=$(getent passwd "$UID") && HOME=${HOME%:*} && HOME=${HOME##*:}; }
    [[ $HOME == /?* ]] || HOME=/home/$USER # an account whose home is / gets an empty one there
    export HOME USER LOGNAME
    SECRET_NAMES=()
    for name in $ACCOUNT_SECRETS ${more//,/ }; do
        [[ -z ${!name:-} ]] || SECRET_NAMES+=("$name")
    done
}

# usage: account::write FOLDER
# Writes passwd, group and secrets into FOLDER.
account::write() {
    local name
    account::identity
    {
        printf 'root:x:0:0:root:/root:/bin/bash\n'
        ((UID == 0)) || printf '%s:x:%d:%d::%s:/bin/bash\n' "$USER" "$UID" "$(id -g)" "$HOME"
    } > "$1/passwd"
    account::_groups > "$1/group"
    (umask 077 && : > "$1/secrets")
    for name in ${SECRET_NAMES[@]+"${SECRET_NAMES[@]}"}; do
        if [[ ${!name} == *$'\n'* ]]; then
            say::warn "$name has a line break in it and is left out"
        else
            printf '%s=%s\n' "$name" "${!name}" >> "$1/secrets"
        fi
    done
}

account::_groups() {
    local gid name
    printf 'root:x:0:\n'
    for gid in $(id -G); do
        ((gid != 0)) || continue
        name=$(getent group "$gid") || name=group$gid
        printf '%s:x:%d:%s\n' "${name%%:*}" "$gid" "$USER"
    done
}
