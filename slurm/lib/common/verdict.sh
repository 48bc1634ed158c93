# shellcheck shell=bash disable=SC2034 # what it sets is read by its callers
# Verdicts: how a launch or a node ended, read by people, by launch.sh and by the next job. See docs/flow.md.
# Sets: VERDICT, VERDICT_NODE.

# code, origin, stage, host, class, cause, fix. The origin says who ended this node: `self`; `signal`, of which it was told; or
# `outside`, when it only found its container or another node ended from outside: launch.sh may know by whom.
declare -gA VERDICT=()

# usage: verdict::set CODE ORIGIN CAUSE FIX
verdict::set() {
    VERDICT[code]=$1 VERDICT[origin]=$2 VERDICT[stage]=$STAGE VERDICT[host]=$HOST
    verdict::classify
    verdict::explain "$3" "$4"
}

# Sets the class of the failure (docs/troubleshooting.md) from its code and stage; verl_node/reporting/verdict.py has the same
# tables, and an error there may know a better class.
verdict::classify() {
    VERDICT[class]=unknown
    case ${VERDICT[code]}:${VERDICT[stage]} in
        0:*) VERDICT[class]=none ;;
        143:*) VERDICT[class]=slurm-container ;;
        *:train) ;;
        77:*) VERDICT[class]=slurm-container ;;
        64:* | 65:*) VERDICT[class]=config ;;
        71:* | 75:*) VERDICT[class]=ray-gcs ;;
        *:image | *:data) VERDICT[class]=${VERDICT[stage]} ;;
        *:model) VERDICT[class]=hf-cache ;;
        *:checks | *:container | *:launch | *:lead) VERDICT[class]=slurm-container ;;
        *:head | *:join | *:cluster) VERDICT[class]=ray-gcs ;;
    esac
}

# usage: verdict::explain CAUSE FIX
verdict::explain() {
    VERDICT[cause]=$1 VERDICT[fix]=$2
}

# usage: fail CODE CAUSE FIX
#   ie: fail 66 "no image verl.cuda:latest" "docker load it on this node"
# Ends the script with CODE; its EXIT trap reports. Never call it in $(…): only the subshell would end.
fail() {
    verdict::set "$1" self "$2" "$3"
    exit "$1"
}

# usage: require_numbers NAME...
# Ends with 64 where one of these variables is set and no whole number: bash runs code in a value that it counts with.
require_numbers() {
    local name
    for name in "$@"; do
        [[ ${!name:-0} =~ ^(0|[1-9][0-9]{0,17})$ ]] || fail 64 "$name is '${!name}'" "set it to a whole number, or unset it"
    done
}

# usage: verdict::write FILE
# By rename, so that a reader on another node sees the whole verdict or none.
verdict::write() {
    ownership::write "$1" verdict::_print
}

verdict::_print() {
    local key
    for key in code origin stage host class cause fix; do
        printf '%s=%s\n' "$key" "${VERDICT[$key]//$'\n'/ }"
    done
}

# usage: verdict::read FILE
verdict::read() {
    local line
    verdict::set 76 self "$1 says nothing" ''
    VERDICT[class]=''
    while IFS= read -r line; do
        verdict::_field "$line" || log::warn "$1 has a line that is no field of a verdict"
    done < "$1"
    [[ -n ${VERDICT[class]} ]] || verdict::classify # an older image writes none
}

# usage: verdict::_field KEY=VALUE
# Takes a field of a verdict that came from elsewhere; returns 1 for what is none.
verdict::_field() {
    local -r key=${1%%=*} value=${1#*=}
    case $key in
        code) [[ $value =~ ^(0|[1-9][0-9]{0,2})$ ]] && ((value < 256)) ;;
        origin) [[ $value =~ ^(self|signal|outside)$ ]] ;;
        stage) [[ $value =~ ^[a-z][a-z0-9\ _-]*$ ]] ;;
        host) [[ $value =~ ^[A-Za-z0-9][A-Za-z0-9._:-]*$ ]] ;;
        class) [[ $value =~ ^[a-z][a-z-]{0,31}$ ]] ;;
        cause | fix) [[ $1 == *=* ]] ;;
        *) false ;;
    esac && VERDICT[$key]=${value//[[:cntrl:]]/ }
}

# usage: verdict::read_first_hand FILE
# Returns 1 for a verdict that only says that somebody else ended the node.
verdict::read_first_hand() {
    verdict::read "$1"
    [[ ${VERDICT[origin]} != signal ]]
}

# The one line that people see last.
verdict::sentence() {
    local text="verdict: ${VERDICT[code]} (${VERDICT[stage]} on ${VERDICT[host]}): ${VERDICT[cause]}"
    [[ -z ${VERDICT[fix]} ]] || text+=" — ${VERDICT[fix]}"
    log::printable "${text//$'\n'/ }"
}

# usage: verdict::send NODE_FOLDER
# Prints the verdict as one line for launch.sh: srun brings it where no file system does.
verdict::send() {
    local key line="verljob-verdict"$'\t'"$1"
    for key in code origin stage host class cause fix; do
        line+=$'\t'"$key=${VERDICT[$key]//[$'\t\n']/ }"
    done
    printf '%s\n' "$line"
}

# usage: verdict::receive RUN_DIR LINE
# Files what verdict::send printed, unless the node could write it there itself; says what failed. Sets VERDICT_NODE to the
# node's number. Whatever a node's processes print may look like it: returns 1 for a line that is no verdict of one of NODES.
verdict::receive() {
    local -r run_dir=$1
    local fields field
    IFS=$'\t' read -r -a fields <<< "$2"
    [[ ${fields[1]-} =~ ^(0|[1-9][0-9]{0,5})-([^/]+)$ && ${NODES[BASH_REMATCH[1]]-} == "${BASH_REMATCH[2]}" ]] || return 1
    VERDICT_NODE=${BASH_REMATCH[1]} VERDICT=([fix]='')
    local -r folder=$run_dir/nodes/${fields[1]}
    for field in "${fields[@]:2}"; do verdict::_field "$field" || return 1; done
    for field in code origin stage host cause; do [[ -n ${VERDICT[$field]+set} ]] || return 1; done
    [[ -n ${VERDICT[class]:-} ]] || verdict::classify
    if [[ ! -e $folder/verdict ]]; then
        { mkdir -p -- "$folder" && verdict::write "$folder/verdict"; } || log::warn "the verdict of ${fields[1]} could not be written"
    fi
    # The head's own is said last, as the job's, and what a worker heard from the head is no news.
    [[ ${VERDICT[code]} == 0 || ${VERDICT[origin]} == signal || ${fields[1]} == 0-* || ${VERDICT[host]} != "${fields[1]#*-}" ]] \
        || verdict::sentence
}

# usage: verdict::_json TEXT
verdict::_json() {
    local text=${1//\\/\\\\}
    text=${text//\"/\\\"}
    text=${text//[[:cntrl:]]/ }
    printf '"%s"' "$text"
}

# usage: verdict::_phases FILE
# Prints the seconds of the phases in the head's result.json; an empty object where it wrote none.
verdict::_phases() {
    local text=''
    ! ownership::is_file "$1" || text=$(< "$1")
    if [[ $text =~ \"phases\":[[:space:]]*(\{[^\}]*\}) ]]; then printf '%s' "${BASH_REMATCH[1]}"; else printf '{}'; fi
}

# usage: verdict::write_result FILE ATTEMPT NODE...
# Writes result.json (docs/flow.md) of VERDICT; keeps the phases that the head wrote.
verdict::write_result() {
    local phases
    phases=$(verdict::_phases "$1")
    ownership::write "$1" verdict::_print_result "$phases" "${@:2}"
}

# usage: verdict::_print_result PHASES ATTEMPT NODE...
verdict::_print_result() {
    local key node comma=''
    printf '{"code": %d, "attempt": %d' "${VERDICT[code]}" "$2"
    for key in stage host class cause fix; do printf ', "%s": ' "$key"; verdict::_json "${VERDICT[$key]}"; done
    printf ', "phases": %s, "nodes": [' "$1"
    for node in "${@:3}"; do printf '%s' "$comma"; verdict::_json "$node"; comma=', '; done
    printf ']}\n'
}
