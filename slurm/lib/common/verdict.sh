# shellcheck shell=bash disable=SC2034 # its variables are read by its callers
# Verdicts: how a launch or a node ended, for people, launch.sh and the next job. Also writes result.json. See docs/flow.md.
# Sets: VERDICT, VERDICT_NODE.

# code, origin, stage, host, class, cause, fix. The origin is `self`; `signal` if this node got one; or `outside` if only
# its container or another node was ended from outside: launch.sh may know the reason.
declare -gA VERDICT=()

# usage: verdict::set CODE ORIGIN CAUSE FIX
verdict::set() {
    VERDICT[code]=$1 VERDICT[origin]=$2 VERDICT[stage]=$STAGE VERDICT[host]=$HOST
    verdict::classify
    verdict::explain "$3" "$4"
}

# Sets the class of the failure (docs/troubleshooting.md) by code and stage; verl_node/reporting/verdict.py has the same
# tables, and its errors may set a better class.
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
        *:rollout) VERDICT[class]=image ;;
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
# Ends the script with CODE; its EXIT trap reports it. Never call it in $(…), where only the subshell would end.
fail() {
    verdict::set "$1" self "$2" "$3"
    exit "$1"
}

# usage: require_numbers NAME...
# Ends with 64 if one of these variables is set and not a whole number: in arithmetic, bash runs code in a value.
require_numbers() {
    local name
    for name in "$@"; do
        [[ ${!name:-0} =~ ^(0|[1-9][0-9]{0,17})$ ]] || fail 64 "$name is '${!name}'" "set it to a whole number, or unset it"
    done
}

# usage: verdict::write FILE
# Replaces the file atomically, so that a reader on another node sees the whole verdict or none.
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
    verdict::set 76 self "$1 is empty" ''
    VERDICT[class]=''
    while IFS= read -r line; do
        verdict::_field "$line" || log::warn "$1 has a line that is not a field of a verdict"
    done < "$1"
    [[ -n ${VERDICT[class]} ]] || verdict::classify # an older image writes no class
}

# usage: verdict::_field KEY=VALUE
# Sets a field of VERDICT from untrusted text; returns 1 if it is not valid.
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
# Returns 1 if the node was ended by a signal from outside.
verdict::read_first_hand() {
    verdict::read "$1"
    [[ ${VERDICT[origin]} != signal ]]
}

# Prints the last line of the output.
verdict::sentence() {
    local text="verdict: ${VERDICT[code]} (${VERDICT[stage]} on ${VERDICT[host]}): ${VERDICT[cause]}"
    [[ -z ${VERDICT[fix]} ]] || text+=" — ${VERDICT[fix]}"
    log::printable "${text//$'\n'/ }"
}

# usage: verdict::send NODE_FOLDER
# Prints the verdict as one line for launch.sh: srun's stderr reaches it without a shared file system.
verdict::send() {
    local key line="verljob-verdict"$'\t'"$1"
    for key in code origin stage host class cause fix; do
        line+=$'\t'"$key=${VERDICT[$key]//[$'\t\n']/ }"
    done
    printf '%s\n' "$line"
}

# usage: verdict::receive RUN_DIR LINE
# Writes a line of verdict::send to the node's verdict file, unless the node wrote the file itself; prints a failure. Sets
# VERDICT_NODE to the node's number. Returns 1 if the line, which any process may have printed, is not a verdict of NODES.
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
    # The head's verdict is printed last, as the job's; one that a worker got from the head is not printed twice.
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

# usage: verdict::write_result RUN_DIR ATTEMPT NODE...
# Writes result.json (docs/flow.md) of VERDICT. Only launch.sh does, or the head's node.sh if launch.sh was killed.
verdict::write_result() {
    ownership::write "$1/result.json" verdict::_print_result "$@"
}

# usage: verdict::_print_result RUN_DIR ATTEMPT NODE...
verdict::_print_result() {
    local key node comma=''
    printf '{"code": %d, "attempt": %d' "${VERDICT[code]}" "$2"
    for key in stage host class cause fix; do printf ', "%s": ' "$key"; verdict::_json "${VERDICT[$key]}"; done
    printf ', "phases": {'
    ! ownership::is_file "$1/phases" || verdict::_print_phases < "$1/phases"
    printf '}, "nodes": ['
    for node in "${@:3}"; do printf '%s' "$comma"; verdict::_json "$node"; comma=', '; done
    printf ']}\n'
}

# Prints the lines `name=seconds` of the head's verl_node as members of a JSON object.
verdict::_print_phases() {
    local line comma=''
    while IFS= read -r line; do
        [[ $line =~ ^([a-z-]{1,32})=([0-9]{1,12}\.[0-9]{3})$ ]] || continue
        printf '%s"%s": %s' "$comma" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
        comma=', '
    done
}
