# shellcheck shell=bash
# Overrides in Hydra's grammar, each key said once.

# Hydra's overrides by key, the whole text of each, in the order of HYDRA_KEYS.
declare -gA HYDRA_SAID=()
HYDRA_KEYS=()

# usage: hydra::say OVERRIDE
# The last override of a key counts; a key that one before it adds with + stays one that is added.
hydra::say() {
    local override=$1
    local key=${1%%=*}
    key=${key#"${key%%[!+~]*}"}
    if [[ -z ${HYDRA_SAID[$key]+set} ]]; then
        HYDRA_KEYS+=("$key")
    elif [[ ${HYDRA_SAID[$key]} == +[!+]* && $override == "$key="* ]]; then
        override=+$override
    fi
    HYDRA_SAID[$key]=$override
}

# usage: hydra::quoted TEXT
# Prints it as a string of Hydra's grammar, where a backslash escapes only quotes and itself.
hydra::quoted() {
    local text=$1 ending=''
    local -r quote="'" slash=\\
    while [[ $text == *"$slash" ]]; do
        text=${text%"$slash"}
        ending+=$slash$slash
    done
    printf "'%s'" "${text//$quote/$slash$quote}$ending"
}

# usage: hydra::literal TEXT
hydra::literal() {
    if [[ $1 =~ ^[A-Za-z0-9_./:%+-]+$ ]]; then printf '%s' "$1"; else hydra::quoted "$1"; fi
}
