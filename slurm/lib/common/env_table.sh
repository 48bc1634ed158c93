# shellcheck shell=bash
# Parser for slurm/platforms/*.env, and for profiles of the old form: lines NAME=value, never run as shell. A lower-case name is
# a setting of the container's start, an upper-case one a variable in it. The user's export wins, then the profile.
# Sets: TABLE, TABLE_ENV, TABLE_REQUIRED.

declare -gA TABLE=()          # setting -> value
declare -ga TABLE_ENV=()      # names of the container's variables
declare -gA TABLE_REQUIRED=() # requirements for images: variable -> value

# detect            path that exists only on nodes of this platform
# gpus              how to look up the GPUs of the step: nvidia, amd or file (see devices.sh)
# gpu_file          for gpus=file: the device's path without its number
# devices           required device nodes; a missing one ends the job with 69
# devices_optional  device nodes or folders of them; a missing one is left out with a warning
# shm, pids         size of /dev/shm; limit of processes and threads
# ulimits           name=soft[:hard] …
# capabilities      capabilities kept: none by default, as they have no effect for an unprivileged user
# security          docker's --security-opt …, for sites that need it
# unset             variables removed from the container, also those that the image sets
readonly TABLE_SETTINGS=' detect gpus gpu_file devices devices_optional shm pids ulimits capabilities security unset '

# Requirements of a site, which a user's export cannot replace.
readonly TABLE_REQUIREMENTS=' VERLJOB_REQUIRE_SIGNATURE VERLJOB_COSIGN '

# Variables that change how programs start, or which file is read next.
readonly TABLE_REFUSED='^(BASH.*|ENV|LD_.*|PATH|IFS|SHELLOPTS|PS4|GLOBIGNORE|CDPATH|VERLJOB_HOME|VERLJOB_PROFILE)$'

# usage: env_table::require_name VARIABLE NAME
# Ends with 64 if NAME could lead out of its folder of slurm/.
env_table::require_name() {
    [[ $2 =~ ^[a-z0-9_-]+$ ]] || fail 64 "$1 is '$2'" "write the name of a file of slurm/: small letters, digits, _ and -"
}

# usage: env_table::_require VARIABLE VALUE
env_table::_require() {
    [[ -n $2 && -z ${TABLE_REQUIRED[$1]:-} ]] || return 0
    [[ -n ${TABLE_IS_PROFILE:-} || -z ${!1:-} ]] || return 0
    TABLE_REQUIRED[$1]=$2
    export "$1=$2"
}

# usage: env_table::_set FILE NAME VALUE
env_table::_set() {
    local -r file=$1 name=$2 value=$3
    if [[ $name =~ ^[a-z_]+$ && $TABLE_SETTINGS == *" $name "* ]]; then
        [[ -n ${TABLE[$name]+set} ]] || TABLE[$name]=$value
    elif [[ $name =~ $TABLE_REFUSED ]]; then
        fail 64 "$file sets $name, which no table may set: it changes how programs start" "export it before sbatch, if you need it"
    elif [[ $TABLE_REQUIREMENTS == *" $name "* ]]; then
        env_table::_require "$name" "$value"
    elif [[ $name =~ ^[A-Z][A-Z0-9_]*$ ]]; then
        [[ -n ${!name+set} ]] || export "$name=$value"
        [[ $name == VERLJOB_* || $name == SBATCH_* ]] || TABLE_ENV+=("$name")
    else
        fail 64 "$file sets '$name', which is not a setting" "use one of:$TABLE_SETTINGS"
    fi
}

# usage: env_table::read FILE
env_table::read() {
    local line number=0
    [[ -r $1 ]] || fail 64 "no table $1" "name one of: $(log::file_names "${1%/*}" .env)"
    while IFS= read -r line || [[ -n $line ]]; do
        number=$((number + 1))
        [[ $line =~ ^[[:space:]]*(#|$) ]] && continue
        [[ $line == *=* ]] || fail 64 "$1:$number has no '=': $line" "write NAME=value"
        [[ $line =~ ^([^=]*)=\"(.*)\"$ || $line =~ ^([^=]*)=(.*)$ ]]
        env_table::_set "$1:$number" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
    done < "$1"
}

# Reads the table of VERLJOB_PLATFORM.
env_table::read_platform() {
    env_table::require_name VERLJOB_PLATFORM "$VERLJOB_PLATFORM"
    env_table::read "$VERLJOB_HOME/slurm/platforms/$VERLJOB_PLATFORM.env"
}

# Prints the first platform whose `detect` path exists on this node, else cpu.
env_table::detect_platform() {
    local platform line path
    for platform in rocm cuda; do
        while IFS= read -r line; do
            path=${line#detect=}
            [[ $line == detect=* && -e $path ]] && { printf '%s\n' "$platform"; return; }
        done < "$VERLJOB_HOME/slurm/platforms/$platform.env"
    done
    printf 'cpu\n'
}
