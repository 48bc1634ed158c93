# shellcheck shell=bash
# Reads slurm/platforms/*.env and slurm/profiles/*.env: data, never run. A lower-case name is a setting of how the
# container starts, an upper-case one a variable in it. Who comes first wins: the user's own export, then the profile,
# then the platform.
# Sets: TABLE, TABLE_DEMANDED, TABLE_ENV.

declare -gA TABLE=()         # setting -> value
declare -ga TABLE_ENV=()     # names of the container's variables
declare -gA TABLE_DEMANDED=() # what tables have demanded of images: variable -> value

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

# What a site demands of images: here the profile goes before the user's export, and nothing takes a demand back.
readonly TABLE_DEMANDS=' VERLJOB_REQUIRE_SIGNATURE VERLJOB_COSIGN '

# Variables by which a table would run something: they change how shells and programs start, or what is read next.
readonly TABLE_REFUSED='^(BASH.*|ENV|LD_.*|PATH|IFS|SHELLOPTS|PS4|GLOBIGNORE|CDPATH|VERLJOB_HOME|VERLJOB_PROFILE)$'

# usage: env_table::require_name VARIABLE NAME
# Names of files of slurm/ cannot lead anywhere else.
env_table::require_name() {
    [[ $2 =~ ^[a-z0-9_-]+$ ]] || fail 64 "$1 is '$2'" "write the name of a file of slurm/: small letters, digits, _ and -"
}

# usage: env_table::_demand VARIABLE VALUE
env_table::_demand() {
    [[ -n $2 && -z ${TABLE_DEMANDED[$1]:-} ]] || return 0
    [[ -n ${TABLE_OF_SITE:-} || -z ${!1:-} ]] || return 0
    TABLE_DEMANDED[$1]=$2
    export "$1=$2"
}

# usage: env_table::_take FILE NAME VALUE
env_table::_take() {
    local -r file=$1 name=$2 value=$3
    if [[ $name =~ ^[a-z_]+$ && $TABLE_SETTINGS == *" $name "* ]]; then
        [[ -n ${TABLE[$name]+set} ]] || TABLE[$name]=$value
    elif [[ $name =~ $TABLE_REFUSED ]]; then
        fail 64 "$file sets $name, which no table may set: it changes how programs start" "export it before sbatch, where it is needed"
    elif [[ $TABLE_DEMANDS == *" $name "* ]]; then
        env_table::_demand "$name" "$value"
    elif [[ $name =~ ^[A-Z][A-Z0-9_]*$ ]]; then
        [[ -n ${!name+set} ]] || export "$name=$value"
        [[ $name == VERLJOB_* || $name == SBATCH_* ]] || TABLE_ENV+=("$name")
    else
        fail 64 "$file has a line for '$name', which is no setting" "settings are:$TABLE_SETTINGS"
    fi
}

# usage: env_table::read FILE
env_table::read() {
    local line number=0
    [[ -r $1 ]] || fail 64 "no table $1" "there are: $(env_table::names "${1%/*}")"
    while IFS= read -r line || [[ -n $line ]]; do
        number=$((number + 1))
        [[ $line =~ ^[[:space:]]*(#|$) ]] && continue
        [[ $line == *=* ]] || fail 64 "$1:$number has no '=': $line" "write NAME=value"
        [[ $line =~ ^([^=]*)=\"(.*)\"$ || $line =~ ^([^=]*)=(.*)$ ]]
        env_table::_take "$1:$number" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
    done < "$1"
}

# usage: env_table::names FOLDER
# Prints the names that FOLDER has tables for.
env_table::names() {
    local file names=''
    for file in "$1"/*.env; do
        file=${file##*/}
        names+=" ${file%.env}"
    done
    printf '%s\n' "${names# }"
}

# usage: env_table::profile NAME-OR-PATH; an empty one is no profile. A path begins with / or ./
env_table::profile() {
    local -r TABLE_OF_SITE=yes # read by env_table::_demand
    case $1 in
        '') ;;
        /* | ./*)
            env_table::_require_own "$1"
            env_table::read "$1"
            ;;
        *)
            env_table::require_name VERLJOB_PROFILE "$1"
            env_table::read "$VERLJOB_HOME/slurm/profiles/$1.env"
            ;;
    esac
}

# usage: env_table::_require_own FILE
# A profile by a path may lie anywhere: it is root's or the account's own, and nobody else can write it.
env_table::_require_own() {
    local owner mode
    [[ -f $1 && -r $1 ]] || fail 64 "no profile $1" "name a file of slurm/profiles, or a file by a path that begins with / or ./"
    read -r owner mode < <(stat --dereference --format='%u %a' -- "$1")
    [[ $owner == 0 || $owner == "$UID" ]] \
        || fail 77 "the profile $1 belongs to $(stat --dereference --format=%U -- "$1")" "take a copy of your own, or one that root owns"
    [[ $mode == *[0145][0145] ]] || fail 77 "the profile $1 can be written by others (mode $mode)" "chmod go-w $1"
}

# usage: env_table::platform
# Reads the table of VERLJOB_PLATFORM.
env_table::platform() {
    env_table::require_name VERLJOB_PLATFORM "$VERLJOB_PLATFORM"
    env_table::read "$VERLJOB_HOME/slurm/platforms/$VERLJOB_PLATFORM.env"
}

# usage: env_table::detect
# Prints the first platform whose `detect` path this node has. cpu names none and comes last.
env_table::detect() {
    local platform line path
    for platform in rocm cuda; do
        while IFS= read -r line; do
            path=${line#detect=}
            [[ $line == detect=* && -e $path ]] && { printf '%s\n' "$platform"; return; }
        done < "$VERLJOB_HOME/slurm/platforms/$platform.env"
    done
    printf 'cpu\n'
}
