# shellcheck shell=bash
# The account in the container. An account that the image does not have gets a home and a name; root can switch to an
# account with the groups of the host's GPUs, whose numbers differ between hosts and from those of the image.

# usage: account::switch COMMAND…
# As root with VERLJOB_RUN_AS=UID[:GID] (default GID: 0): runs COMMAND as that account.
account::switch() {
    ((UID == 0)) && [[ -n ${VERLJOB_RUN_AS:-} ]] || return 0
    local uid=${VERLJOB_RUN_AS%:*} gid=0 group groups=0
    [[ $VERLJOB_RUN_AS != *:* ]] || gid=${VERLJOB_RUN_AS#*:}
    if [[ ! $uid:$gid =~ ^[1-9][0-9]*:[0-9]+$ ]]; then
        printf 'entrypoint: VERLJOB_RUN_AS is %s; set it to UID or UID:GID, as numbers\n' "$VERLJOB_RUN_AS" >&2
        exit 64
    fi
    while read -r group; do
        groups+=,$group
        account::_add_name group "$group" "device$group:x:$group:"
    done < <(account::device_groups)
    account::_add_name passwd "$uid" "user$uid:x:$uid:$gid::/home/user$uid:/bin/bash"
    unset VERLJOB_RUN_AS HOME USER LOGNAME
    [[ ! -w /home ]] || { mkdir -p "/home/user$uid" && chown "$uid:$gid" "/home/user$uid" && export HOME=/home/user$uid; }
    exec setpriv --reuid "$uid" --regid "$gid" --groups "$groups" --no-new-privs -- "$@"
}

# Sets HOME, USER and LOGNAME if this account cannot use them: the engine sets HOME=/ if the image does not have the account.
account::set_home() {
    [[ -n ${USER:-} ]] || USER=$(id -un 2> /dev/null) || USER=user$UID
    export USER LOGNAME=${LOGNAME:-$USER} HOME=${HOME:-/}
    [[ $HOME == / || ! -d $HOME || ! -w $HOME ]] || return 0
    if ! HOME=$(mktemp -d "${TMPDIR:-/tmp}/home.XXXXXX"); then
        HOME=/
        printf 'entrypoint: no folder for HOME can be created in %s; start the container with --tmpfs /tmp\n' "${TMPDIR:-/tmp}" >&2
    fi
}

# Prints the --group-add flags that this account needs for its GPUs, if it may not open them.
account::warn_about_devices() {
    local device missing=()
    for device in $ACCOUNT_DEVICES; do
        [[ ! -c $device || (-r $device && -w $device) ]] || missing+=("$device")
    done
    ((${#missing[@]} == 0)) || printf 'entrypoint: uid %s may not open %s: start the container with %s\n' "$UID" "${missing[*]}" \
        "$(stat -c '--group-add %g' -- "${missing[@]}" | sort -u | paste -s -d ' ')" >&2
}

# Prints the group IDs of the GPUs' devices.
account::device_groups() {
    local device
    for device in $ACCOUNT_DEVICES; do
        [[ ! -c $device ]] || stat -c %g -- "$device"
    done | sort -u
}

readonly ACCOUNT_DEVICES=${ACCOUNT_DEVICES:-'/dev/kfd /dev/dri/renderD* /dev/dri/card*'} # every account may open NVIDIA's

# usage: account::_add_name DATABASE NUMBER LINE
# Adds LINE if DATABASE has no entry for NUMBER. On a read-only root the number stays without a name.
account::_add_name() {
    getent "$1" "$2" > /dev/null || [[ ! -w /etc/$1 ]] || printf '%s\n' "$3" >> "/etc/$1"
}
