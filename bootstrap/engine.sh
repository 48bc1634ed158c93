# shellcheck shell=bash
# The Docker engine: a client that can use BuildKit, Compose, and an engine that answers.

# Sets VERLJOB_DOCKER to the first client on PATH that can use BuildKit: one with the buildx plugin, or one before 23,
# where BuildKit is built in. Others build by the classic builder, without a word. Returns 1 where there is none.
engine::_client() {
    local client version major
    ENGINE_VERSION='' ENGINE_PASSED=()
    while IFS= read -r client; do
        version=$("$client" --version) || continue
        version=${version#Docker version } version=${version%%,*}
        major=${version%%.*}
        if [[ $major =~ ^[0-9]+$ ]] && ((major < 23)) || "$client" buildx version > /dev/null 2>&1; then
            export VERLJOB_DOCKER=$client
            ENGINE_VERSION=$version
            return
        fi
        ENGINE_PASSED+=("$client $version")
    done < <(if [[ -n ${VERLJOB_DOCKER:-} ]]; then printf '%s\n' "$VERLJOB_DOCKER"; else type -ap docker; fi)
    return 1
}

engine::_compose() {
    "${VERLJOB_DOCKER:-docker}" compose version > /dev/null 2>&1 || command -v docker-compose > /dev/null
}

engine::_answers() {
    ENGINE_SAID=$("$VERLJOB_DOCKER" version --format '{{.Server.Version}}' 2>&1)
}

# Wants the packages that are missing.
engine::want() {
    if ! engine::_client; then
        packages::want docker.io 'the Docker engine and a client that can use BuildKit, which builds the images'
        packages::want 'docker-cli?' 'its client, where that is a package of its own'
        packages::want 'docker-buildx?' 'BuildKit for its client, where that is a package of its own'
    elif ! command -v dockerd > /dev/null && ! engine::_answers; then
        packages::want docker.io "the Docker engine: $VERLJOB_DOCKER is here, and no engine answers it"
    fi
    ! $COMPOSE || engine::_compose || packages::want 'docker-compose-v2|docker-compose' 'starts the rehearsal cluster'
    # Only where no registry can be reached, which is known later: without root nobody is asked for it.
    if packages::possible && ! command -v debootstrap > /dev/null; then
        packages::want debootstrap "makes the images' Debian base where no registry can be reached"
        packages::want 'debian-archive-keyring?' 'lets debootstrap check the packages of that base'
    fi
}

# Chooses the client and starts an engine where none answers.
engine::ready() {
    [[ -n ${ENGINE_VERSION:-} ]] || engine::_client \
        || give_up "no docker on PATH can use BuildKit (${ENGINE_PASSED[*]:-none found}): install docker-buildx"
    ((${#ENGINE_PASSED[@]} == 0)) || say "docker: $VERLJOB_DOCKER $ENGINE_VERSION, not ${ENGINE_PASSED[*]}, which lacks buildx"
    if engine::_answers; then
        engine::_same_root
    elif [[ $ENGINE_SAID == *'permission denied'* ]]; then
        give_up "$(id -un) may not use the Docker engine: sudo usermod --append --groups docker $(id -un), then log in again"
    else
        dockerd::start
    fi
}

# A data root that was asked for is not silently another one.
engine::_same_root() {
    local root
    [[ -n ${VERLJOB_DOCKER_ROOT:-} ]] || return 0
    root=$("$VERLJOB_DOCKER" info --format '{{.DockerRootDir}}')
    [[ $root == "$VERLJOB_DOCKER_ROOT" ]] \
        || give_up "an engine with data in $root runs, VERLJOB_DOCKER_ROOT says $VERLJOB_DOCKER_ROOT: stop it or unset that"
}
