# shellcheck shell=bash
# Talk, to stderr; a script's stdout is its result.

say::note() { printf '%s: %s\n' "$HOST" "$*" >&2; }

say::warn() { printf '%s: warning: %s\n' "$HOST" "$*" >&2; }

# usage: say::command ARGUMENT...
# Prints a command as a shell would take it.
say::command() {
    local argument line=''
    local -r quote="'\\''"
    for argument in "$@"; do
        [[ $argument =~ ^[A-Za-z0-9_./:=@%+,-]+$ ]] || argument="'${argument//\'/$quote}'"
        line+=" $argument"
    done
    printf '%s\n' "${line# }"
}
