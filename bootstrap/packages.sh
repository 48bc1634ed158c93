# shellcheck shell=bash
# What the machine lacks: collected first, then installed at once, or told at once.

PACKAGES=() # one a line of what is wanted: names by |, of which the first that exists is taken; ? where none may exist
REASONS=()

say() { printf 'run: %s\n' "$*" >&2; }

# usage: give_up LINE...
# 69 is EX_UNAVAILABLE of sysexits.h: something that this needs is not there.
give_up() {
    say "$@"
    exit 69
}

# usage: packages::want NAMES WHY
#   ie: packages::want 'docker-compose-v2|docker-compose' 'starts the rehearsal cluster'
packages::want() {
    PACKAGES+=("$1")
    REASONS+=("$2")
}

# Whether this machine lets us install: root, and a Debian or Ubuntu.
packages::possible() {
    $INSTALL && [[ $(id -u) == 0 ]] && command -v apt-get > /dev/null
}

# Installs what is wanted, or says what to install and ends.
packages::install() {
    ((${#PACKAGES[@]} > 0)) || return 0
    local index name
    local -a names=()
    say "this machine lacks:"
    for index in "${!PACKAGES[@]}"; do
        name=${PACKAGES[index]%\?}
        say "  ${name//|/ or }: ${REASONS[index]}"
    done
    packages::possible || packages::_tell
    packages::_apt update
    for index in "${!PACKAGES[@]}"; do
        if name=$(packages::_first "${PACKAGES[index]}"); then names+=("$name"); fi
    done
    ((${#names[@]} > 0)) || give_up "the package sources know none of them: see /etc/apt/sources.list"
    say "installing: ${names[*]}"
    packages::_apt install --yes --no-install-recommends "${names[@]}"
}

packages::_tell() {
    local wanted name
    local -a names=()
    for wanted in "${PACKAGES[@]}"; do
        # Where the package sources are not known, the last of the names is the one that every release has.
        if name=$(packages::_first "$wanted" 2> /dev/null); then
            names+=("$name")
        elif [[ $wanted != *\? ]]; then
            names+=("${wanted##*|}")
        fi
    done
    say "install them and run this again. On Debian or Ubuntu: sudo apt-get install ${names[*]}"
    give_up "Elsewhere: Python 3.9 or later, and Docker Engine with buildx and Compose (https://docs.docker.com/engine/install)"
}

# usage: packages::_first NAMES
# Prints the first of the names that the package sources have; a name that they lack is an error unless NAMES ends in ?.
packages::_first() {
    local -a names
    local name
    IFS='|' read -r -a names <<< "${1%\?}"
    for name in "${names[@]}"; do
        ! apt-cache show "$name" > /dev/null 2>&1 || { printf '%s\n' "$name"; return 0; }
    done
    [[ $1 == *\? ]] || say "the package sources have no ${1//|/ or }"
    return 1
}

# usage: packages::_apt ARGUMENT...
# apt's words go to a log; they are shown when it fails.
packages::_apt() {
    local -r log=$HERE/.build/apt.log
    mkdir -p "$HERE/.build"
    DEBIAN_FRONTEND=noninteractive apt-get --quiet "$@" < /dev/null > "$log" 2>&1 && return
    tail -n 20 "$log" >&2
    give_up "apt-get $1 failed; all it said is in $log"
}
