# shellcheck shell=bash
# Values that never appear in a command, an environment that the engine shows, or anything that is written: they travel
# in a file, 0600, and are masked in what is kept.

readonly SECRETS_ALWAYS=' HF_TOKEN HUGGING_FACE_HUB_TOKEN WANDB_API_KEY SWANLAB_API_KEY MLFLOW_TRACKING_TOKEN
 MLFLOW_TRACKING_PASSWORD AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN OPENAI_API_KEY GITHUB_TOKEN '

# Of the variables that the container gets anyway, those named like a secret, or whose value is a URL with a password.
readonly SECRETS_NAMED='(TOKEN|PASSWORD|PASSWD|SECRET|API_KEY|ACCESS_KEY)$' SECRETS_IN_URL='://[^/:@]*:[^/@]+@'

# What looks like one whoever's it is; verl_node/masking.py has the same list.
readonly -a SECRETS_PATTERNS=(
    'hf_[A-Za-z0-9]{30,}'
    'gh[oprsu]_[A-Za-z0-9]{36,}'
    'github_pat_[A-Za-z0-9_]{40,}'
    'glpat-[A-Za-z0-9_-]{20,}'
    'AKIA[A-Z0-9]{16}'
    'sk-[A-Za-z0-9_-]{32,}'
    '[A-Z_]+(TOKEN|PASSWORD|SECRET|API_KEY|ACCESS_KEY)=[A-Za-z0-9._~+/-]{16,}'
    '://[A-Za-z0-9._~%-]*:[A-Za-z0-9._~%!$&*+=-]+@'
)
SECRETS_PATTERN=$(IFS='|' && printf '%s' "${SECRETS_PATTERNS[*]}")
readonly SECRETS_PATTERN
readonly SECRETS_SHORTEST=6 # characters: a shorter value is found in too many words that are no secret

# Sets SECRET_NAMES (more: VERLJOB_SECRET_NAMES=NAME,NAME).
secrets::find() {
    local name
    local -r more=${VERLJOB_SECRET_NAMES:-}
    SECRET_NAMES=()
    while IFS= read -r name; do
        [[ -n ${!name:-} ]] || continue
        if [[ "${SECRETS_ALWAYS//$'\n'/} ${more//,/ } " == *" $name "* ]] \
            || { environment::wanted "$name" && [[ $name =~ $SECRETS_NAMED || ${!name} =~ $SECRETS_IN_URL ]]; }; then
            SECRET_NAMES+=("$name")
        fi
    done < <(compgen -e)
}

# usage: secrets::write FILE
secrets::write() {
    local name
    (umask 077 && : > "$1")
    for name in ${SECRET_NAMES[@]+"${SECRET_NAMES[@]}"}; do
        if [[ ${!name} == *$'\n'* ]]; then
            say::warn "$name has a line break in it and is left out"
        else
            printf '%s=%s\n' "$name" "${!name}" >> "$1"
        fi
    done
}

# usage: secrets::masked TEXT
# Prints it without the job's own secrets and without what looks like one.
secrets::masked() {
    local text=$1 name value found mask
    local LC_ALL=C
    for name in ${SECRET_NAMES[@]+"${SECRET_NAMES[@]}"} LOCAL_TOKEN; do
        value=${!name:-}
        ((${#value} < SECRETS_SHORTEST)) || text=${text//"$value"/***}
    done
    while [[ $text =~ $SECRETS_PATTERN ]]; do
        found=${BASH_REMATCH[0]}
        case $found in
            ://*) mask='://***@' ;;
            *=*) mask="${found%%=*}=***" ;;
            *) mask='***' ;;
        esac
        text=${text//"$found"/$mask}
    done
    printf '%s\n' "$text"
}
