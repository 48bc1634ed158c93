# shellcheck shell=bash disable=SC2034 # its variables are read by enroot
# The login for a registry, as enroot reads it: a file `.credentials` in the form of netrc.

# usage: enroot_login::find HOST
# Leaves ENROOT_CONFIG_PATH, the account's folder, if it has a login for HOST. Otherwise sets it to PULL_TMPDIR, with the login
# that `docker login` stored, if there is one.
enroot_login::find() { enroot_login::_is_known "$1" || enroot_login::_use_docker "$1"; }

# usage: enroot_login::_is_known HOST
enroot_login::_is_known() {
    local word host _
    while read -r word host _; do
        [[ $word != machine || ${host/registry-1.docker.io/docker.io} != "${1%:*}" ]] || return 0
    done 2> /dev/null < "$ENROOT_CONFIG_PATH/.credentials"
    return 1
}

# usage: enroot_login::_use_docker HOST
# Writes the login that `docker login` stored into a file as enroot reads it. enroot runs a password that begins with `$`.
enroot_login::_use_docker() {
    local login host=$1 machine=${1%:*}
    local -r config=${DOCKER_CONFIG:-${HOME:-}/.docker}/config.json
    [[ $host != docker.io ]] || { host=https://index.docker.io/v1/ && machine=registry-1.docker.io; }
    [[ -r $config ]] && login=$(jq --raw-output --arg host "$host" '.auths[$host].auth // empty | @base64d' "$config" 2> /dev/null) \
        && [[ -n $login ]] || return 0
    if [[ ! $login =~ ^([[:graph:]]+):([[:graph:]]+)$ || ${login#*:} == \$* || $login == *[\"\\]* ]]; then
        log::warn "the login for $host in $config has characters that enroot does not read: it is not used"
        return
    fi
    ENROOT_CONFIG_PATH=$PULL_TMPDIR
    (umask 077 && printf 'machine %s login %s password %s\n' "$machine" "${login%%:*}" "${login#*:}" > "$PULL_TMPDIR/.credentials")
    printf 'default login %s password %s\n' "${login%%:*}" "${login#*:}" >> "$PULL_TMPDIR/.credentials" # for its token server
}
