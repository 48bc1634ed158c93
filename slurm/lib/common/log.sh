# shellcheck shell=bash
# Log lines on stderr, and text for people. The stdout of a script is its result.

log::note() {
    log::printable "$HOST: $*" >&2
}

log::warn() {
    log::printable "$HOST: warning: $*" >&2
}

# usage: log::printable TEXT
# Prints TEXT as a line without terminal control characters: C0 and DEL (tab and newline stay), C1 in UTF-8, and marks of
# text direction, as verl_node/reporting/control_characters.py. Runs in a subshell whose locale matches bytes.
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
# Prints a command, quoted for a shell.
log::command() {
    local argument line=''
    local -r quote="'\\''"
    for argument in "$@"; do
        [[ $argument =~ ^[A-Za-z0-9_./:=@%+,-]+$ ]] || argument="'${argument//\'/$quote}'"
        line+=" $argument"
    done
    printf '%s\n' "${line# }"
}

# usage: log::file_names FOLDER SUFFIX
# Prints the names of the files in FOLDER that end in SUFFIX, without it.
log::file_names() {
    local file names=''
    for file in "$1"/*"$2"; do
        [[ ! -e $file ]] || { file=${file##*/} && names+=" ${file%"$2"}"; }
    done
    printf '%s\n' "${names# }"
}
