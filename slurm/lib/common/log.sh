# shellcheck shell=bash
# Log lines on stderr; stdout of a script is its result.

log::note() {
    log::printable "$HOST: $*" >&2
}

log::warn() {
    log::printable "$HOST: warning: $*" >&2
}

# usage: log::printable TEXT
# Prints TEXT as a line without what a terminal obeys, since it may hold what a container or a log wrote: C0 and DEL but
# tab and newline, C1 in UTF-8, and what turns the direction of text. verl_node/reporting/control_characters.py drops the same. In a shell
# of its own, where bytes are matched whatever the locale is.
log::printable() (
    LC_ALL=C
    text=${1//$'\r'/ }
    text=${text//[$'\001'-$'\010\013'-$'\037\177']/}
    text=${text//$'\xc2'[$'\x80'-$'\x9f']/}                 # U+0080 to U+009F
    text=${text//$'\xe2\x80'[$'\x8e\x8f\xa8'-$'\xae']/}     # U+200E, U+200F, U+2028 to U+202E
    text=${text//$'\xe2\x81'[$'\xa6'-$'\xa9']/}             # U+2066 to U+2069
    printf '%s\n' "${text//$'\xd8\x9c'/}"                   # U+061C
)

# usage: log::command ARGUMENT...
# Prints a command as a shell would take it.
log::command() {
    local argument line=''
    local -r quote="'\\''"
    for argument in "$@"; do
        [[ $argument =~ ^[A-Za-z0-9_./:=@%+,-]+$ ]] || argument="'${argument//\'/$quote}'"
        line+=" $argument"
    done
    printf '%s\n' "${line# }"
}
