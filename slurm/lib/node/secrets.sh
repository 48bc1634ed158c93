# shellcheck shell=bash
# Secrets: passed to the container in a file of mode 0600, never in a command or an environment that the engine shows, and
# masked in saved logs.
# Sets: SECRET_NAMES.

readonly SECRETS_ALWAYS=' HF_TOKEN HUGGING_FACE_HUB_TOKEN WANDB_API_KEY SWANLAB_API_KEY MLFLOW_TRACKING_TOKEN
 MLFLOW_TRACKING_PASSWORD AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN OPENAI_API_KEY GITHUB_TOKEN '

# A variable of the container is secret by its name, by a URL with a password in its value, or, with a less specific name or
# a proxy's, if `name=value` matches a pattern below.
readonly SECRETS_NAMED='(TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|API_KEY|ACCESS_KEY)$' SECRETS_IN_URL='://[^/:@]*:[^/@]+@'
readonly SECRETS_PERHAPS_NAMED='(_PASS|_PWD|_KEY|_PAT|CREDENTIALS?|[Pp][Rr][Oo][Xx][Yy])$'

# Patterns of secrets, one a line, which verl_node reads too. Sets SECRETS_PATTERN to their alternation.
secrets::_read_patterns() {
    local line
    SECRETS_PATTERN=''
    while IFS= read -r line; do
        [[ $line == '' || $line == '#'* ]] || SECRETS_PATTERN+=${SECRETS_PATTERN:+|}$line
    done < "$VERLJOB_HOME/entrypoints/verl_node/reporting/secret_patterns.txt"
    readonly SECRETS_PATTERN
}
secrets::_read_patterns
# verl_node/reporting/masking.py has the same three (a test holds them equal).
readonly SECRETS_WORD='A-Za-z0-9._~+/!@#$%^&*=:?-' # all characters that a pattern can match, for [...] and [!...]
readonly SECRETS_SHORTEST=6 # characters: a shorter value is part of too many words that are not secret
readonly SECRETS_LONGEST=4096 # bytes: part of a longer secret may remain where a text was cut

# Sets SECRET_NAMES (VERLJOB_SECRET_NAMES=NAME,NAME adds names).
secrets::find() {
    local name
    local -r added=${VERLJOB_SECRET_NAMES:-}
    SECRET_NAMES=()
    while IFS= read -r name; do
        [[ -n ${!name:-} ]] || continue
        if [[ "${SECRETS_ALWAYS//$'\n'/} ${added//,/ } " == *" $name "* ]] \
            || { environment::is_passed "$name" && secrets::_is_secret "$name"; }; then
            SECRET_NAMES+=("$name")
        fi
    done < <(compgen -e)
}

# usage: secrets::_is_secret NAME
secrets::_is_secret() {
    [[ $1 =~ $SECRETS_NAMED || ${!1} =~ $SECRETS_IN_URL || ($1 =~ $SECRETS_PERHAPS_NAMED && "$1=${!1}" =~ $SECRETS_PATTERN) ]]
}

# usage: secrets::write FILE
secrets::write() {
    local name
    (umask 077 && : > "$1")
    for name in ${SECRET_NAMES[@]+"${SECRET_NAMES[@]}"}; do
        if [[ ${!name} == *$'\n'* ]]; then
            log::warn "$name contains a line break: left out"
        else
            printf '%s=%s\n' "$name" "${!name}" >> "$1"
        fi
    done
}

# usage: secrets::mask
# Copies stdin to stdout with the values of the job's secrets and all matches of the patterns masked. Works on two pieces at
# a time, since each match costs bash time in the length of the text; keeps the second piece for the next round, since a
# secret may continue in the third.
secrets::mask() {
    local LC_ALL=C piece rest text='' masked='' more=1 continues=''
    while [[ -n $more ]]; do
        IFS= read -r -d '' -N "$SECRETS_LONGEST" piece || more=''
        # shellcheck disable=SC2295 # the ranges count
        rest=${continues:+${piece%%[!$SECRETS_WORD]*}} # of a match longer than any secret
        piece=${piece:${#rest}}
        [[ -z $piece ]] || continues=''
        text+=$piece
        secrets::_mask_values
        secrets::_mask_patterns
        text=$masked$text
        if [[ -n $more ]] && ((${#text} > SECRETS_LONGEST)); then
            printf '%s' "${text::${#text}-SECRETS_LONGEST}"
            text=${text: -SECRETS_LONGEST}
        fi
    done
    printf '%s' "$text"
}

# Masks the job's secrets in the caller's text.
secrets::_mask_values() {
    local name value
    for name in ${SECRET_NAMES[@]+"${SECRET_NAMES[@]}"} LOCAL_TOKEN; do
        value=${!name:-}
        ((${#value} < SECRETS_SHORTEST)) || text=${text//"$value"/***}
    done
}

# Moves the caller's text to its `masked`, up to the last match that begins in the first piece.
secrets::_mask_patterns() {
    local found mask before
    masked=''
    while [[ $text =~ $SECRETS_PATTERN ]]; do
        found=${BASH_REMATCH[0]}
        before=${text%%"$found"*}
        if [[ -n $more ]]; then
            ((${#text} - ${#before} > SECRETS_LONGEST)) || return 0
            ((${#before} + ${#found} < ${#text})) || continues=1
        fi
        case $found in
            ://*) mask='://***@' ;;
            [Pp][Rr][Oo][Xx][Yy]=*) mask="${found%%=*}=***@" ;;
            *=*) mask="${found%%=*}=***" ;;
            *) mask='***' ;;
        esac
        masked+=$before$mask
        text=${text:${#before}+${#found}}
        secrets::_mask_repeats
    done
}

# Masks the same secret in the rest of the caller's text at once, unless it is part of a longer one: thousands of single
# matches would take long.
secrets::_mask_repeats() {
    local left='' right=''
    [[ $found == *[=:]* ]] || left=${before: -1}
    [[ $found == *@ ]] || right=${text::1}
    if [[ ($found == *[=:]* || $left == [!$SECRETS_WORD]) && ($found == *@ || $right == [!$SECRETS_WORD]) ]]; then
        text=${text//"$left$found$right"/"$left$mask$right"}
    fi
}
