# shellcheck shell=bash
# Packages that this machine is missing: collected first, then installed or listed in one go.
# Sets: PACKAGES, REASONS, TOOLS.

PACKAGES=() # an entry is a name, or names separated by |, of which the first that exists is used; ? marks an optional one
REASONS=()

declare -A TOOL_PACKAGES=([mksquashfs]=squashfs-tools) # where the package has another name than the program
declare -A TOOL_REASONS=(
    [buildah]='builds images whose bytes depend on their inputs only'
    [podman]='the third engine that the tests build with'
    [skopeo]='writes OCI archives'
    [mksquashfs]='writes the squashfs that Apptainer and enroot start'
)

say() { printf 'run: %s\n' "$*" >&2; }

# usage: fail LINE...
# 69 is EX_UNAVAILABLE of sysexits.h.
fail() {
    say "$@"
    exit 69
}

# usage: packages::require NAMES REASON
#   ie: packages::require 'docker-compose-v2|docker-compose' 'starts the rehearsal cluster'
packages::require() {
    PACKAGES+=("$1")
    REASONS+=("$2")
}

# usage: packages::require_tools WORD...
# Requests the programs that the tasks and flags among the words use besides the engine.
packages::require_tools() {
    local word tool
    TOOLS=()
    for word in "$@"; do
        case $word in
            --) break ;;
            test) TOOLS=(buildah podman skopeo mksquashfs) ;;
            --reproducible) TOOLS+=(buildah) ;;
            apptainer | enroot) TOOLS+=(mksquashfs) ;; # of demo --runtime
        esac
        [[ $word != *oci-archive* ]] || TOOLS+=(skopeo)
        [[ $word != *squashfs* ]] || TOOLS+=(mksquashfs)
    done
    for tool in ${TOOLS[@]+"${TOOLS[@]}"}; do
        command -v "$tool" > /dev/null || packages::require "${TOOL_PACKAGES[$tool]:-$tool}" "${TOOL_REASONS[$tool]}"
    done
}

# Whether packages may be installed: as root on Debian or Ubuntu.
packages::possible() {
    $INSTALL && [[ $(id -u) == 0 ]] && command -v apt-get > /dev/null
}

# Installs the missing packages, or lists them and ends.
packages::install() {
    ((${#PACKAGES[@]} > 0)) || return 0
    local index entry name
    local -a names=()
    say "missing on this machine:"
    for index in "${!PACKAGES[@]}"; do
        name=${PACKAGES[index]%\?}
        say "  ${name//|/ or }: ${REASONS[index]}"
    done
    ! packages::possible || packages::_apt update
    for entry in "${PACKAGES[@]}"; do
        if name=$(packages::_first "$entry"); then
            names+=("$name")
        elif [[ $entry != *\? ]] && packages::possible; then
            say "the package sources have no ${entry//|/ or }"
        elif [[ $entry != *\? ]]; then
            names+=("${entry##*|}") # without package sources: the name that every release has
        fi
    done
    if ! packages::possible; then
        say "install them and run this again. On Debian or Ubuntu: sudo apt-get install ${names[*]}"
        fail "Elsewhere: Python 3.9 or later, and Docker Engine with buildx and Compose (https://docs.docker.com/engine/install)"
    fi
    ((${#names[@]} > 0)) || fail "the package sources have none of them: see /etc/apt/sources.list"
    say "installing: ${names[*]}"
    packages::_apt install --yes --no-install-recommends "${names[@]}"
}

# usage: packages::_first NAMES
# Prints the first of the names that the package sources have; returns 1 if they have none.
packages::_first() {
    local -a names
    local name
    IFS='|' read -r -a names <<< "${1%\?}"
    for name in "${names[@]}"; do
        ! apt-cache show "$name" > /dev/null 2>&1 || { printf '%s\n' "$name"; return 0; }
    done
    return 1
}

# usage: packages::_apt ARGUMENT...
# The output of apt goes to a log, whose end is shown on failure.
packages::_apt() {
    local -r log=$HERE/.build/apt.log
    mkdir -p "$HERE/.build"
    DEBIAN_FRONTEND=noninteractive apt-get --quiet "$@" < /dev/null > "$log" 2>&1 && return
    tail -n 20 "$log" >&2
    fail "apt-get $1 failed; its output is in $log"
}
