# shellcheck shell=bash
# Reads slurm/platforms/*.env and slurm/profiles/*.env: data, never run. A lower-case name is a setting of how the
# container starts, an upper-case one a variable in it. Who comes first wins: the user's own export, then the profile,
# then the platform.

declare -gA TABLE=()     # setting -> value
declare -ga TABLE_ENV=() # names of the container's variables

# detect            path whose presence on a node says that it is of this platform
# gpus              how the GPUs of the step are found: nvidia, amd or file (see devices.sh)
# gpu_file          for gpus=file: the device's path without its number
# devices           device nodes without which the platform does not work: 69
# devices_optional  device nodes or folders of them that are left out with a warning
# shm, pids         size of /dev/shm; most processes and threads
# ulimits           name=soft[:hard] …
# capabilities      capabilities kept; they have no effect for an unprivileged user, so the tables keep none
# security          docker's --security-opt …, for sites that must
# unset             variables removed from the container, also where the image sets them
readonly TABLE_SETTINGS=' detect gpus gpu_file devices devices_optional shm pids ulimits capabilities security unset '

# usage: table::_take FILE NAME VALUE
table::_take() {
    local -r file=$1 name=$2 value=$3
    if [[ $name =~ ^[a-z_]+$ && $TABLE_SETTINGS == *" $name "* ]]; then
        [[ -n ${TABLE[$name]+set} ]] || TABLE[$name]=$value
    elif [[ $name =~ ^[A-Z][A-Z0-9_]*$ ]]; then
        # What a site demands of images is not taken back by a user's export.
        [[ -n ${!name+set} && $name != VERLJOB_REQUIRE_SIGNATURE ]] || export "$name=$value"
        [[ $name == VERLJOB_* || $name == SBATCH_* ]] || TABLE_ENV+=("$name")
    else
        fail 64 "$file has a line for '$name', which is no setting" "settings are:$TABLE_SETTINGS"
    fi
}

# usage: table::read FILE
table::read() {
    local line number=0
    [[ -r $1 ]] || fail 64 "no table $1" "there are: $(table::names "${1%/*}")"
    while IFS= read -r line || [[ -n $line ]]; do
        number=$((number + 1))
        [[ $line =~ ^[[:space:]]*(#|$) ]] && continue
        [[ $line == *=* ]] || fail 64 "$1:$number has no '=': $line" "write NAME=value"
        [[ $line =~ ^([^=]*)=\"(.*)\"$ || $line =~ ^([^=]*)=(.*)$ ]]
        table::_take "$1:$number" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
    done < "$1"
}

# usage: table::names FOLDER
# Prints the names that FOLDER has tables for.
table::names() {
    local file names=''
    for file in "$1"/*.env; do
        file=${file##*/}
        names+=" ${file%.env}"
    done
    printf '%s\n' "${names# }"
}

# usage: table::profile NAME-OR-PATH; an empty one is no profile.
table::profile() {
    case $1 in
        '') ;;
        */*) table::read "$1" ;;
        *) table::read "$VERLJOB_HOME/slurm/profiles/$1.env" ;;
    esac
}

# usage: table::detect
# Prints the first platform whose `detect` path this node has. cpu names none and comes last.
table::detect() {
    local platform line path
    for platform in rocm cuda; do
        while IFS= read -r line; do
            path=${line#detect=}
            [[ $line == detect=* && -e $path ]] && { printf '%s\n' "$platform"; return; }
        done < "$VERLJOB_HOME/slurm/platforms/$platform.env"
    done
    printf 'cpu\n'
}
