# shellcheck shell=bash disable=SC2034 # what it sets is read by its callers
# How a launch or a node ended: made once, read by people, by launch.sh and by the next job. See docs/flow.md.

# code, origin, stage, host, cause, fix. The origin says who ended this node: `self`; `signal`, of which it was told; or
# `outside`, when it only found its container or another node ended from outside: launch.sh may know by whom.
declare -gA VERDICT=()

# usage: verdict::set CODE ORIGIN CAUSE FIX
verdict::set() {
    VERDICT[code]=$1 VERDICT[origin]=$2 VERDICT[stage]=$STAGE VERDICT[host]=$HOST
    verdict::explain "$3" "$4"
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

# usage: verdict::write FILE
# By rename, so that a reader on another node sees the whole verdict or none.
verdict::write() {
    local key
    for key in code origin stage host cause fix; do
        printf '%s=%s\n' "$key" "${VERDICT[$key]//$'\n'/ }"
    done > "$1.new"
    mv -f -- "$1.new" "$1"
}

# usage: verdict::read FILE
verdict::read() {
    local line
    verdict::set 76 self "$1 says nothing" ''
    while IFS= read -r line; do
        [[ $line != *=* ]] || VERDICT[${line%%=*}]=${line#*=}
    done < "$1"
    [[ ${VERDICT[code]} =~ ^[0-9]+$ ]] || VERDICT[code]=76
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
    say::printable "${text//$'\n'/ }"
}

# usage: verdict::send NODE_FOLDER
# Prints the verdict as one line for launch.sh: srun brings it where no file system does.
verdict::send() {
    local key line="verljob-verdict"$'\t'"$1"
    for key in code origin stage host cause fix; do
        line+=$'\t'"$key=${VERDICT[$key]//[$'\t\n']/ }"
    done
    printf '%s\n' "$line"
}

# usage: verdict::receive RUN_DIR LINE
# Files what verdict::send printed, unless the node could write it there itself; says what failed.
verdict::receive() {
    local -r run_dir=$1
    local fields field
    IFS=$'\t' read -r -a fields <<< "$2"
    local -r folder=$run_dir/nodes/${fields[1]}
    VERDICT=()
    for field in "${fields[@]:2}"; do VERDICT[${field%%=*}]=${field#*=}; done
    if [[ ! -e $folder/verdict ]]; then
        mkdir -p -- "$folder"
        verdict::write "$folder/verdict"
    fi
    # The head's own is said last, as the job's, and what a worker heard from the head is no news.
    [[ ${VERDICT[code]} == 0 || ${VERDICT[origin]} == signal || ${fields[1]} == 0-* || ${VERDICT[host]} != "${fields[1]#*-}" ]] \
        || verdict::sentence
}
