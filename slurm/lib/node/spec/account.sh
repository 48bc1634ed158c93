# shellcheck shell=bash
# The user of the container: the submitting account with all its groups, with passwd and group entries.
# Sets: ACCOUNT_GIDS, HOME, LOGNAME, USER.

declare -ga ACCOUNT_GIDS=()

# Sets ACCOUNT_GIDS, the account's own group first. Asked once: a node forks as little as it can (bench/launch/growth.py).
account::gids() {
    ((${#ACCOUNT_GIDS[@]})) || read -r -a ACCOUNT_GIDS <<< "$(id -G)"
}

# Sets and exports HOME, USER and LOGNAME where Slurm did not.
account::identity() {
    USER=$(id -un 2> /dev/null) || USER=user$UID # a number that the directory service does not know just now
    LOGNAME=$USER
    [[ -n ${HOME:-} ]] || { HOME=$(getent passwd "$UID") && HOME=${HOME%:*} && HOME=${HOME##*:}; }
    [[ $HOME == /?* ]] || HOME=/home/$USER # an account whose home is / gets an empty one there
    export HOME USER LOGNAME
}

# usage: account::write FOLDER
# Writes passwd and group into FOLDER.
account::write() {
    account::gids
    {
        printf 'root:x:0:0:root:/root:/bin/bash\n'
        ((UID == 0)) || printf '%s:x:%d:%d::%s:/bin/bash\n' "$USER" "$UID" "${ACCOUNT_GIDS[0]}" "$HOME"
    } > "$1/passwd"
    account::_groups > "$1/group"
}

account::_groups() {
    local gid name
    printf 'root:x:0:\n'
    for gid in "${ACCOUNT_GIDS[@]}"; do
        ((gid != 0)) || continue
        name=$(getent group "$gid") || name=group$gid
        printf '%s:x:%d:%s\n' "${name%%:*}" "$gid" "$USER"
    done
}
