#!/bin/sh
# Installs pinned packages of the distribution inside a build, with the base's own shell and apt.
#   usage: apt.sh [--download FOLDER] PINS PACKAGE...
#   env:   APT_MIRROR, APT_SUITES: the distribution's mirror, and its suites with their components, separated by semicolons
# Only these are queried, not the base's other sources, of which one may be dead. If a site gives sources (/run/secrets/sources),
# APT_CONFIG names them; a base of another distribution keeps its own.
# With --download it only fetches the packages into an empty folder. PINS (images/pins/apt/) has a line `name version sha256`
# for each package and its dependencies; if it has none, since the distribution's mirror was never queried, the mirror's
# versions are installed, with a warning.
set -eu

# usage: say LINE
say() {
    printf 'apt: %s\n' "$1"
}

# usage: choose_sources FOLDER
# Extends APT_CONFIG by the distribution's own sources, if this is the distribution that they are for.
choose_sources() {
    [ -n "${APT_SUITES:-}" ] && [ ! -e "${SITE_SOURCES:-/run/secrets/sources}" ] || return 0
    # shellcheck disable=SC1090,SC1091 # a file of the base
    codename=$(. "${OS_RELEASE:-/etc/os-release}" && printf '%s' "${VERSION_CODENAME:-}")
    if [ "$codename" != "${APT_SUITES%% *}" ]; then
        say "this base is ${codename:-unknown}, not ${APT_SUITES%% *}: its own sources are queried"
        return 0
    fi
    printf '%s\n' "$APT_SUITES" | tr ';' '\n' | sed "s|^|deb $APT_MIRROR |" > "$1/sources"
    {
        [ -z "${APT_CONFIG:-}" ] || cat "$APT_CONFIG"
        printf 'Dir::Etc::SourceList "%s";\nDir::Etc::SourceParts "-";\n' "$1/sources"
    } > "$1/apt.conf"
    export APT_CONFIG="$1/apt.conf"
}

# usage: missing PINS
# Prints the lines of the packages that this base does not have in any version.
missing() {
    while read -r name version hash; do
        case $name in '#'* | '') continue ;; esac
        [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$name" 2> /dev/null)" = installed ] \
            || printf '%s %s %s\n' "$name" "$version" "$hash"
    done < "$1"
}

# usage: gone < LINES
# Prints the packages that the mirror no longer has, as name=version.
gone() {
    while read -r name version _; do
        apt-cache show "$name=$version" > /dev/null 2>&1 || printf ' %s=%s' "$name" "$version"
    done
}

# usage: verify < LINES
# Checks each fetched archive against the hash of its line. apt writes the colon of an epoch as %3a.
verify() {
    while read -r name version hash; do
        file=$(printf '%s_%s' "$name" "$version" | sed 's/:/%3a/')
        printf '%s  %s\n' "$hash" "$(ls "$ARCHIVES/$file"_*.deb)"
    done | sha256sum --check --quiet --strict
}

# usage: fetch PACKAGE...
fetch() {
    apt-get install --yes --no-install-recommends --download-only ${FOLDER:+-o "Dir::Cache::Archives=$FOLDER"} "$@"
}

# usage: install PACKAGE...
install() {
    apt-get install --yes --no-install-recommends "$@"
}

# usage: install_pinned PINS
install_pinned() {
    lines=$(missing "$1")
    [ -n "$lines" ] || return 0
    lost=$(printf '%s\n' "$lines" | gone)
    if [ -n "$lost" ]; then
        say "the mirror no longer has$lost: update the pins with invoke image.pins --update, or name a mirror that keeps them" >&2
        exit 1
    fi
    # shellcheck disable=SC2046 # one argument each
    set -- $(printf '%s\n' "$lines" | while read -r name version _; do printf '%s=%s ' "$name" "$version"; done)
    fetch "$@"
    printf '%s\n' "$lines" | verify
    [ -n "$FOLDER" ] || install "$@"
}

main() {
    FOLDER=
    if [ "$1" = --download ]; then
        FOLDER=$2
        shift 2
    fi
    ARCHIVES=${FOLDER:-${APT_ARCHIVES:-/var/cache/apt/archives}}
    pins=$1
    shift
    folder=$(mktemp -d)
    choose_sources "$folder"
    apt-get update || say "WARNING: not every source of this base answers"
    if grep -q '^[a-z]' "$pins"; then
        install_pinned "$pins"
    else
        say "WARNING: $* without a version: the mirror of this distribution was not queried yet (invoke image.pins --update)"
        if [ -n "$FOLDER" ]; then fetch "$@"; else install "$@"; fi
    fi
    apt-get clean
    rm -rf "$folder"
    # Also the files that contain a time.
    rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/*.log /var/cache/ldconfig/aux-cache
}

main "$@"
