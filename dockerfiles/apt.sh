#!/bin/sh
# Runs inside a build, on the base's own shell and apt: apt.sh PINS PACKAGE...
# Installs the packages. PINS (images/apt/) has a line `name version sha256` for each and for all that they need; where it has
# none, since the distribution's mirror was never asked, they come as the mirror has them, and that is said.
set -eu

# usage: say LINE
say() {
    printf 'apt: %s\n' "$1"
}

# usage: missing PINS
# The lines of what this base has not installed in any version.
missing() {
    while read -r name version hash; do
        case $name in '#'* | '') continue ;; esac
        [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$name" 2> /dev/null)" = installed ] \
            || printf '%s %s %s\n' "$name" "$version" "$hash"
    done < "$1"
}

# usage: gone < LINES
# What the mirror no longer has, as name=version.
gone() {
    while read -r name version _; do
        apt-cache show "$name=$version" > /dev/null 2>&1 || printf ' %s=%s' "$name" "$version"
    done
}

# usage: verify < LINES
# Each archive that was fetched has the hash of its line. apt writes the colon of an epoch as %3a.
verify() {
    while read -r name version hash; do
        file=$(printf '%s_%s' "$name" "$version" | sed 's/:/%3a/')
        printf '%s  %s\n' "$hash" "$(ls "${APT_ARCHIVES:-/var/cache/apt/archives}/$file"_*.deb)"
    done | sha256sum --check --quiet --strict
}

# usage: install_pinned PINS
install_pinned() {
    lines=$(missing "$1")
    [ -n "$lines" ] || return 0
    lost=$(printf '%s\n' "$lines" | gone)
    if [ -n "$lost" ]; then
        say "the mirror no longer has$lost: take what it has with invoke pins --update, or name a mirror that keeps them" >&2
        exit 1
    fi
    # shellcheck disable=SC2046 # a word each
    set -- $(printf '%s\n' "$lines" | while read -r name version _; do printf '%s=%s ' "$name" "$version"; done)
    apt-get install --yes --no-install-recommends --download-only "$@"
    printf '%s\n' "$lines" | verify
    apt-get install --yes --no-install-recommends "$@"
}

main() {
    pins=$1
    shift
    apt-get update
    if grep -q '^[a-z]' "$pins"; then
        install_pinned "$pins"
    else
        say "WARNING: $* without a version: no mirror of this distribution was asked yet (invoke pins --update)"
        apt-get install --yes --no-install-recommends "$@"
    fi
    apt-get clean
    rm -rf /var/lib/apt/lists/*
}

main "$@"
