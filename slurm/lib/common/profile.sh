# shellcheck shell=bash disable=SC2034 # TABLE_IS_PROFILE is read by env_table.sh
# Reads the profile of a site, slurm/profiles/<name>.toml: the settings of launch.sh and node.sh, and variables with conditions.
# The lines are TOML of this form only, so that neither a node nor a login node needs another parser (docs/profiles.md):
#   # comment             on a line of its own
#   [table]               or [table.name]
#   key = "text"          in ASCII, without " and \
#   key = ["a", "b"]      on one line
#   key = 12              or true, false, 2026-08-20
# A value is data: it is matched and never run. The user's export wins, then the profile, then the platform.
# Sets: PROFILE, VERLJOB_PLUGIN_VARIABLES.

declare -gA PROFILE=() # table.key -> value as written

# Keys of a profile, `*` for a name; slurm/jobs/profile.py describes each, and reads those that only sbatch needs.
readonly PROFILE_KEYS=' about site recognised.cluster recognised.host recognised.variable values.* sbatch.flags sbatch.forbidden
 sbatch.required gpus.flag gpus.per_node gpus.type limits.*.flag limits.*.nodes limits.*.time nodes.runtime nodes.local_disk
 nodes.image_store nodes.binds nodes.internet modules.load hooks.before hooks.after environment.*.value environment.*.when container.*
 bad_nodes.*.reason '
readonly PROFILE_ORIGIN=' source date user_script ' # of every table
readonly PROFILE_MOST_LINES=1000

# Variables that take a value of the profile as it is; a list is joined as its variable separates it.
declare -gA PROFILE_VARIABLES=([nodes.runtime]=VERLJOB_RUNTIME [nodes.local_disk]=VERLJOB_LOCAL
    [nodes.image_store]=VERLJOB_IMAGE_STORE [nodes.binds]=VERLJOB_MOUNTS [modules.load]=VERLJOB_MODULES
    [hooks.before]=VERLJOB_HOOK_BEFORE [hooks.after]=VERLJOB_HOOK_AFTER)
declare -gA PROFILE_SEPARATORS=([nodes.binds]=',' [modules.load]=' ')
# For nodes without internet: the hub and wandb then do not wait for an answer that never comes.
readonly PROFILE_OFFLINE='HF_HUB_OFFLINE=1 WANDB_MODE=offline'

# usage: profile::read NAME-OR-PATH launch|node
# Exports the profile's settings and variables and fills TABLE. A path begins with / or ./; an empty name means no profile. For
# launch it leaves out what depends on a node's GPUs or image: node.sh decides that.
profile::read() {
    local -r TABLE_IS_PROFILE=yes # for env_table::_require
    local file
    [[ -n $1 ]] || return 0
    file=$(profile::_path "$1")
    profile::_require_own "$1"
    if [[ $file != *.toml ]]; then
        [[ $2 != launch ]] || log::warn "the profile $file has the old form, which the next release does not read: write it as docs/profiles.md says"
        env_table::read "$file"
        return
    fi
    profile::_load "$file"
    profile::_apply "$file" "$2"
}

# usage: profile::print NAME-OR-PATH
# Prints `table.key=value` for every key, as written, the site's and the personal file's together.
profile::print() {
    local -r TABLE_IS_PROFILE=yes # for env_table::_require
    local key file
    file=$(profile::_path "$1")
    profile::_require_own "$1"
    [[ $file == *.toml ]] || fail 64 "the profile $file has the old form" "write it as docs/profiles.md says"
    profile::_load "$file"
    for key in "${!PROFILE[@]}"; do printf '%s=%s\n' "$key" "${PROFILE[$key]}"; done
}

# usage: profile::_path NAME-OR-PATH
profile::_path() {
    local -r folder=$VERLJOB_HOME/slurm/profiles
    case $1 in
        /* | ./*) printf '%s\n' "$1" ;;
        *) [[ -e $folder/$1.env && ! -e $folder/$1.toml ]] && printf '%s\n' "$folder/$1.env" || printf '%s\n' "$folder/$1.toml" ;;
    esac
}

# usage: profile::_require_own NAME-OR-PATH
# Ends with 64 for a name that is none, and with 77 if another account owns a profile that is given by path, or can write it.
profile::_require_own() {
    local owner mode
    if [[ $1 != /* && $1 != ./* ]]; then
        env_table::require_name VERLJOB_PROFILE "$1"
        [[ -r $(profile::_path "$1") ]] || fail 64 "no profile '$1'" "name one of: $(log::file_names "$VERLJOB_HOME/slurm/profiles" .toml)"
        return
    fi
    [[ -f $1 && -r $1 ]] || fail 64 "no profile $1" "name a file of slurm/profiles, or a file by a path that begins with / or ./"
    read -r owner mode < <(stat --dereference --format='%u %a' -- "$1")
    [[ $owner == 0 || $owner == "$UID" ]] \
        || fail 77 "the profile $1 belongs to $(stat --dereference --format=%U -- "$1")" "use a copy of your own, or one that root owns"
    [[ $mode == *[0145][0145] ]] || fail 77 "the profile $1 can be written by others (mode $mode)" "chmod go-w $1"
}

# usage: profile::_load FILE
# Fills PROFILE from FILE and from the site that it completes (`site = "name"`), whose requirements it cannot replace.
profile::_load() {
    local site file
    PROFILE=()
    profile::_parse "$1"
    site=$(profile::_text site)
    [[ -n $site ]] || { profile::_add_requirements "$1"; return 0; }
    env_table::require_name "site in $1" "$site"
    file=$VERLJOB_HOME/slurm/profiles/$site.toml
    [[ -r $file ]] || fail 64 "$1 completes the site '$site', and there is no $file" "name one of: $(log::file_names "${file%/*}" .toml)"
    PROFILE=()
    profile::_parse "$file"
    [[ -z ${PROFILE[site]:-} ]] || fail 64 "$file completes another site itself" "remove its line site = …"
    profile::_add_requirements "$file"
    profile::_parse "$1"
    profile::_add_requirements "$1"
}

# usage: profile::_add_requirements FILE
# Exports the requirements of a site, which hold without a condition; the first value of each stays.
profile::_add_requirements() {
    local name
    for name in $TABLE_REQUIREMENTS; do
        env_table::_set "$1" "$name" "$(profile::_text "environment.$name.value")"
        unset "PROFILE[environment.$name.when]"
        [[ -z ${TABLE_REQUIRED[$name]:-} ]] || PROFILE[environment.$name.value]="\"${TABLE_REQUIRED[$name]}\""
    done
}

# usage: profile::_parse FILE
profile::_parse() {
    local line key number=0 table=''
    local -A seen=()
    while IFS= read -r line || [[ -n $line ]]; do
        number=$((number + 1))
        ((number <= PROFILE_MOST_LINES)) || fail 64 "$1 has more than $PROFILE_MOST_LINES lines" "name a profile of a site"
        [[ $line =~ ^[[:space:]]*(#|$) ]] && continue
        if [[ $line =~ ^\[([a-z_]+(\.[A-Za-z0-9_-]+)?)\]$ ]]; then
            table=${BASH_REMATCH[1]}. key=$table
            [[ $table != environment.* ]] || profile::_forget "$table"
        elif [[ $line =~ ^([a-z_]+)\ =\ (.*)$ ]]; then
            key=$table${BASH_REMATCH[1]}
            profile::_store "$1:$number" "$key" "${BASH_REMATCH[2]}"
        else
            fail 64 "$1:$number is not a line of a profile: $line" 'write [table], [table.name] or key = "value"'
        fi
        [[ -z ${seen[$key]:-} ]] || fail 64 "$1:$number repeats ${key%.}" "keep one of the two lines"
        seen[$key]=yes
    done < "$1"
}

# usage: profile::_forget TABLE.
# A personal file replaces a variable together with its conditions and its source.
profile::_forget() {
    local key
    for key in value when $PROFILE_ORIGIN; do unset "PROFILE[$1$key]"; done
}

# usage: profile::_store WHERE KEY VALUE
profile::_store() {
    local generic=$2
    local -r text='"[^"\[:cntrl:]]*"'
    [[ $2 != *.*.* ]] || generic="${2%%.*}.*.${2##*.}"
    [[ ! $2 =~ ^(values|container)\.[a-z_]+$ ]] || generic="${2%%.*}.*"
    [[ " ${PROFILE_KEYS//$'\n'/ } " == *" $generic "* ]] || [[ $2 == *.* && $PROFILE_ORIGIN == *" ${2##*.} "* ]] \
        || fail 64 "$1 sets '$2', which is not a key of a profile" "see the list of keys in docs/profiles.md"
    [[ -z ${3//[[:ascii:]]/} && $3 =~ ^($text|\[($text(, $text)*)?\]|0|[1-9][0-9]{0,8}|true|false|[0-9]{4}-[0-9]{2}-[0-9]{2})$ ]] \
        || fail 64 "$1: $2 is $3" 'write "text" in ASCII without " and \, ["a", "b"], a whole number, true, false or a date'
    PROFILE[$2]=$3
}

# usage: profile::_text KEY [SEPARATOR]
# Prints a value without its quotes; a list joined by SEPARATOR, by default newlines. Nothing for a key that is not set.
profile::_text() {
    local value=${PROFILE[$1]:-}
    local -r separator=${2:-$'\n'}
    value=${value#\[} value=${value%\]}
    value=${value//\", \"/$separator}
    printf '%s' "${value//\"/}"
}

# usage: profile::_apply FILE launch|node
profile::_apply() {
    local key value user
    user=$(id -un 2> /dev/null) || user=user$UID
    export VERLJOB_PLUGIN_VARIABLES=''
    for key in "${!PROFILE_VARIABLES[@]}"; do
        value=$(profile::_text "$key" "${PROFILE_SEPARATORS[$key]:-}")
        [[ -z $value ]] || env_table::_set "$1" "${PROFILE_VARIABLES[$key]}" "${value//\{user\}/$user}"
    done
    # GPUs that Slurm does not count: a node of the job has them all.
    [[ ${PROFILE[gpus.flag]:-} != '""' ]] || env_table::_set "$1" VERLJOB_GPUS_PER_NODE "${PROFILE[gpus.per_node]:-}"
    if [[ ${PROFILE[nodes.internet]:-} == false ]]; then
        for value in $PROFILE_OFFLINE; do env_table::_set "$1" "${value%%=*}" "${value#*=}"; done
    fi
    for key in "${!PROFILE[@]}"; do
        case $key in
            container.source | container.date | container.user_script) ;;
            container.*) env_table::_set "$1" "${key#*.}" "$(profile::_text "$key")" ;;
            environment.*.value) profile::_apply_variable "$1" "$2" "${key%.value}" ;;
        esac
    done
}

# usage: profile::_apply_variable FILE launch|node KEY
profile::_apply_variable() {
    local condition plugin=''
    local -r name=${3#*.}
    [[ $TABLE_REQUIREMENTS != *" $name "* ]] || return 0 # profile::_add_requirements
    while IFS= read -r condition; do
        case $condition in
            '') ;;
            plugin) plugin=yes ;;
            *) profile::_holds "$1" "$2" "$condition" || return 0 ;;
        esac
    done < <(profile::_text "$3.when" && printf '\n')
    if [[ -z $plugin ]]; then
        env_table::_set "$1" "$name" "$(profile::_text "$3.value")"
    elif [[ $2 == node ]]; then
        profile::_add_plugin_variable "$1" "$name" "$(profile::_text "$3.value")"
    fi
}

# usage: profile::_holds FILE launch|node CONDITION
profile::_holds() {
    local most
    local -r nodes=${SLURM_NNODES:-${SLURM_JOB_NUM_NODES:-2}} # two in a dry run
    if [[ $3 =~ ^nodes\ \>\ (0|[1-9][0-9]{0,4})$ ]]; then
        most=${BASH_REMATCH[1]}
        [[ $nodes =~ ^[1-9][0-9]{0,5}$ ]] || fail 64 "the job has '$nodes' nodes" "start launch.sh by sbatch or salloc, which set SLURM_NNODES"
        ((nodes > most))
    elif [[ $3 =~ ^gpu\ =\ ([A-Za-z0-9]+)$ ]]; then
        [[ $2 == node ]] && profile::_has_gpu "${BASH_REMATCH[1]}"
    else
        fail 64 "$1 has the condition '$3'" 'write "nodes > 1", "gpu = GB200" or "plugin"'
    fi
}

# usage: profile::_has_gpu KIND [ROOT]
# Tests whether the driver's name of a card has the word KIND. ROOT is a prefix of /proc, for tests.
profile::_has_gpu() {
    local file key value
    for file in "${2:-}"/proc/driver/nvidia/gpus/*/information; do
        [[ -r $file ]] || continue
        while IFS=: read -r key value; do
            [[ $key != Model || " ${value//[^A-Za-z0-9]/ } " != *" $1 "* ]] || return 0
        done < "$file"
    done
    return 1
}

# usage: profile::_add_plugin_variable FILE NAME VALUE
# For verl_node, which sets it if the image has a network plugin of NCCL.
profile::_add_plugin_variable() {
    [[ $2 =~ ^(NCCL|RCCL|FI|HSA|OFI)_[A-Z0-9_]+$ && $3 != *';'* ]] \
        || fail 64 "$1 sets $2=$3 if the image has a plugin" "such a variable is of NCCL or libfabric, without ; in its value"
    [[ -z ${!2+set} ]] || return 0
    VERLJOB_PLUGIN_VARIABLES+="${VERLJOB_PLUGIN_VARIABLES:+;}$2=$3"
}
