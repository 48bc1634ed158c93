# shellcheck shell=bash disable=SC2034 # what it sets is read by signature.sh
# A registry asked by the distribution API, with curl and the engine's own logins. For what no engine pulls: a signature.

REGISTRY_HEADER='' # an Authorization line, once one was asked for

# usage: registry::of REFERENCE
# Sets REGISTRY_HOST, REGISTRY_PATH, REGISTRY_NAME (both), REGISTRY_TAG (a tag or a digest) and REGISTRY_URL, or returns 1
# where REFERENCE names no registry.
registry::of() {
    local rest=${1%%@*}
    REGISTRY_TAG=latest REGISTRY_HEADER=''
    [[ $rest == */* ]] || return 1
    [[ ${rest##*/} != *:* ]] || REGISTRY_TAG=${rest##*:} rest=${rest%:*}
    [[ $1 != *@* ]] || REGISTRY_TAG=${1#*@}
    REGISTRY_HOST=${rest%%/*} REGISTRY_PATH=${rest#*/} REGISTRY_NAME=$rest
    [[ $REGISTRY_HOST == *[.:]* || $REGISTRY_HOST == localhost ]] || REGISTRY_HOST=docker.io REGISTRY_PATH=$rest
    REGISTRY_URL=https://${REGISTRY_HOST/#docker.io/registry-1.docker.io}
    [[ ! ${REGISTRY_HOST%:*} =~ ^(localhost|127\.[0-9.]+)$ ]] && ! runtime::insecure "$REGISTRY_HOST" \
        || REGISTRY_URL=http://$REGISTRY_HOST
}

# usage: registry::get PLACE FILE
# Takes manifests/… or blobs/… of REGISTRY_PATH. Sets REGISTRY_CODE, 000 where nobody answered; returns 1 unless it is 200.
registry::get() {
    local -r url=$REGISTRY_URL/v2/$REGISTRY_PATH/$1
    registry::_ask "$2" "url = \"$url\""
    if [[ $REGISTRY_CODE == 401 ]]; then
        ! registry::_login "$2" || registry::_ask "$2" "url = \"$url\""
    fi
    [[ $REGISTRY_CODE == 200 ]]
}

# usage: registry::_ask FILE LINE…
# Runs curl with the lines of its configuration, which a login is in: a file that nobody else reads, and no argument.
registry::_ask() {
    local -r file=$1
    local -r ca=/etc/docker/certs.d/$REGISTRY_HOST/ca.crt
    REGISTRY_CODE=000 REGISTRY_SAID=''
    (
        umask 077
        printf '%s\n' "${@:2}" silent show-error location 'max-time = 60' "output = \"$file\"" "dump-header = \"$file.head\"" \
            'write-out = "%{http_code}"' 'header = "Accept: application/vnd.oci.image.manifest.v1+json"' \
            'header = "Accept: application/vnd.docker.distribution.manifest.v2+json"' \
            'header = "Accept: application/vnd.oci.image.index.v1+json"' \
            'header = "Accept: application/vnd.docker.distribution.manifest.list.v2+json"'
        [[ -z $REGISTRY_HEADER ]] || printf 'header = "%s"\n' "$REGISTRY_HEADER"
        [[ ! -r $ca ]] || printf 'cacert = "%s"\n' "$ca"
    ) > "$file.curl"
    : > "$file"
    : > "$file.head"
    process::run curl --config "$file.curl" > "$file.code" 2> "$file.said" || REGISTRY_SAID=$(< "$file.said")
    [[ ! -s $file.code ]] || REGISTRY_CODE=$(< "$file.code")
}

# usage: registry::_login FILE
# Answers the challenge that FILE's headers have, with docker's or podman's login where there is one. Sets REGISTRY_HEADER.
registry::_login() {
    local head name auth='' lines=()
    head=$(tr -d '\r' < "$1.head")
    registry::_known && auth="Authorization: Basic $REGISTRY_LOGIN"
    if [[ ! $head =~ [Bb]earer\ +realm=\"([^\"]+)\" ]]; then
        REGISTRY_HEADER=$auth
        [[ -n $auth ]]
        return
    fi
    lines=("url = \"${BASH_REMATCH[1]}\"" get)
    for name in service scope; do
        [[ ! $head =~ [,\ ]$name=\"([^\"]*)\" ]] || lines+=("data-urlencode = \"$name=${BASH_REMATCH[1]}\"")
    done
    REGISTRY_HEADER=$auth
    registry::_ask "$1.token" "${lines[@]}"
    REGISTRY_HEADER='' REGISTRY_CODE=401
    [[ $(< "$1.token") =~ \"(access_)?token\"\ *:\ *\"([^\"]+)\" ]] && REGISTRY_HEADER="Authorization: Bearer ${BASH_REMATCH[2]}"
}

# Sets REGISTRY_LOGIN to what `docker login` or `podman login` left for this registry, or returns 1.
registry::_known() {
    local file text host=$REGISTRY_HOST
    [[ $host != docker.io ]] || host=https://index.docker.io/v1/
    for file in "${REGISTRY_AUTH_FILE:-${XDG_RUNTIME_DIR:-/nowhere}/containers/auth.json}" "${DOCKER_CONFIG:-${HOME:-}/.docker}/config.json"; do
        [[ -r $file ]] || continue
        text=$(tr -d '[:space:]' < "$file")
        [[ $text == *"\"$host\":{"* ]] || continue
        text=${text#*"\"$host\":{"}
        [[ ${text%%\}*} =~ \"auth\":\"([A-Za-z0-9+/=]+)\" ]] && REGISTRY_LOGIN=${BASH_REMATCH[1]} && return 0
    done
    return 1
}
