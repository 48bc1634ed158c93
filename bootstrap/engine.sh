# shellcheck shell=bash
# The Docker engine: a client that supports BuildKit, Compose, and a daemon that answers.
# Sets: VERLJOB_DOCKER, ENGINE_VERSION, ENGINE_BUILDX, ENGINE_REJECTED, ENGINE_OUTPUT.
#
# `bash bootstrap/engine.sh` chooses the client for images/engine/client.py: it prints the path, the version, and true or
# false for the buildx plugin, a line each.

# Sets VERLJOB_DOCKER to the first client on PATH that supports BuildKit (a client that it names already is the only
# candidate), ENGINE_VERSION, ENGINE_BUILDX, and ENGINE_REJECTED with the other clients. Returns 1 if there is none.
# From 23 on BuildKit needs the buildx plugin; without it `docker build` silently uses the classic builder.
engine::choose_client() {
    local client version major
    ENGINE_VERSION='' ENGINE_BUILDX=false ENGINE_REJECTED=()
    while IFS= read -r client; do
        if ! version=$("$client" --version 2>&1); then
            ENGINE_REJECTED+=("$client (does not run: ${version:0:200})")
            continue
        fi
        version=${version#Docker version } version=${version%%,*} major=${version%%.*}
        ! "$client" buildx version > /dev/null 2>&1 || ENGINE_BUILDX=true
        if [[ $major =~ ^[0-9]+$ ]] && ((major < 23)) || $ENGINE_BUILDX; then
            export VERLJOB_DOCKER=$client
            ENGINE_VERSION=$version
            return
        fi
        ENGINE_REJECTED+=("$client $version (without the buildx plugin)")
    done < <(engine::_clients)
    return 1
}

# Prints the docker clients in PATH's order, each file once.
engine::_clients() {
    local client other
    local -a seen=()
    [[ -z ${VERLJOB_DOCKER:-} ]] || { printf '%s\n' "$VERLJOB_DOCKER"; return; }
    while IFS= read -r client; do
        for other in ${seen[@]+"${seen[@]}"}; do [[ ! $client -ef $other ]] || continue 2; done
        seen+=("$client")
        printf '%s\n' "$client"
    done < <(type -ap docker)
}

engine::_has_compose() {
    "${VERLJOB_DOCKER:-docker}" compose version > /dev/null 2>&1 || command -v docker-compose > /dev/null
}

engine::_answers() {
    ENGINE_OUTPUT=$("$VERLJOB_DOCKER" version --format '{{.Server.Version}}' 2>&1)
}

# Requests the packages that are missing.
engine::require() {
    if ! engine::choose_client; then
        packages::require docker.io 'the Docker engine and a client with BuildKit, which builds the images'
        packages::require 'docker-cli?' 'its client, if that is a separate package'
        packages::require 'docker-buildx?' 'BuildKit for its client, if that is a separate package'
    elif ! command -v dockerd > /dev/null && ! engine::_answers; then
        packages::require docker.io "the Docker engine: no engine answers the client $VERLJOB_DOCKER"
    fi
    ! $COMPOSE || engine::_has_compose || packages::require 'docker-compose-v2|docker-compose' 'starts the rehearsal cluster'
    # Needed only if no registry can be reached, which shows later: without root it is not requested.
    if packages::possible && ! command -v debootstrap > /dev/null; then
        packages::require debootstrap "makes the images' Debian base if no registry can be reached"
        packages::require 'debian-archive-keyring?' 'lets debootstrap verify the packages of that base'
    fi
}

# Chooses the client and starts an engine if none answers.
engine::ready() {
    [[ -n ${ENGINE_VERSION:-} ]] || engine::choose_client \
        || fail "no docker on PATH supports BuildKit (${ENGINE_REJECTED[*]:-none found}): install docker-buildx"
    ((${#ENGINE_REJECTED[@]} == 0)) || say "docker: $VERLJOB_DOCKER $ENGINE_VERSION, not ${ENGINE_REJECTED[*]}"
    if engine::_answers; then
        engine::_check_data_root
    elif [[ $ENGINE_OUTPUT == *'permission denied'* ]]; then
        fail "$(id -un) may not use the Docker engine: sudo usermod --append --groups docker $(id -un), then log in again"
    else
        dockerd::start
    fi
}

# Fails if VERLJOB_DOCKER_ROOT names another data root than that of the running engine.
engine::_check_data_root() {
    local root
    [[ -n ${VERLJOB_DOCKER_ROOT:-} ]] || return 0
    root=$("$VERLJOB_DOCKER" info --format '{{.DockerRootDir}}')
    [[ $root == "$VERLJOB_DOCKER_ROOT" ]] \
        || fail "an engine with data in $root runs, VERLJOB_DOCKER_ROOT is $VERLJOB_DOCKER_ROOT: stop the engine or unset that"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    engine::choose_client || { printf '%s\n' ${ENGINE_REJECTED[@]+"${ENGINE_REJECTED[@]}"} >&2; exit 1; }
    printf '%s\n' "$VERLJOB_DOCKER" "$ENGINE_VERSION" "$ENGINE_BUILDX"
fi
