# shellcheck shell=bash
# Values that never appear in a command, an environment that the engine shows, or anything that is written: they travel
# in a file, 0600, and are masked in what is kept.
# Sets: SECRET_NAMES.

readonly SECRETS_ALWAYS=' HF_TOKEN HUGGING_FACE_HUB_TOKEN WANDB_API_KEY SWANLAB_API_KEY MLFLOW_TRACKING_TOKEN
 MLFLOW_TRACKING_PASSWORD AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN OPENAI_API_KEY GITHUB_TOKEN '

# Of the variables that the container gets anyway, those named like a secret, or whose value is a URL with a password;
# and those whose name says less, or is a proxy's, when name and value together match a pattern below.
readonly SECRETS_NAMED='(TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|API_KEY|ACCESS_KEY)$' SECRETS_IN_URL='://[^/:@]*:[^/@]+@'
readonly SECRETS_PERHAPS_NAMED='(_PASS|_PWD|_KEY|_PAT|CREDENTIALS?|[Pp][Rr][Oo][Xx][Yy])$'

# What looks like one whoever's it is; verl_node/reporting/masking.py has the same list, and says why it is this one.
readonly -a SECRETS_PATTERNS=(
    'hf_[A-Za-z0-9]{30,}'
    'gh[oprsu]_[A-Za-z0-9]{36,}'
    'github_pat_[A-Za-z0-9_]{40,}'
    'glpat-[A-Za-z0-9_-]{20,}'
    'AKIA[A-Z0-9]{16,}'
    'sk-[A-Za-z0-9_-]{32,}'
    '(TOKEN|SECRET|API_KEY|ACCESS_KEY)=[A-Za-z0-9._~+/-]{16,}'
    'PASS(WORD|WD|PHRASE)=[A-Za-z0-9._~+/!@#$%^&*=:?-]{8,}'
    '_(PASS|PWD)=[A-Za-z0-9_+!@#$%^&*=:?-][A-Za-z0-9._~+/!@#$%^&*=:?-]{7,}'
    '(_KEY|_PAT|CREDENTIALS?)=[A-Za-z0-9_+-][A-Za-z0-9._~+/-]{15,}'
    '[Pp][Rr][Oo][Xx][Yy]=[A-Za-z0-9._~%!$&*+-]*:[A-Za-z0-9._~%!$&*+=-]+@'
    '://[A-Za-z0-9._~%!$&*+=-]*:[A-Za-z0-9._~%!$&*+=-]+@'
)
SECRETS_PATTERN=$(IFS='|' && printf '%s' "${SECRETS_PATTERNS[*]}")
readonly SECRETS_PATTERN
readonly SECRETS_WORD='A-Za-z0-9._~+/!@#$%^&*=:?-' # every character that a pattern may take, for [...] and [!...]
readonly SECRETS_SHORTEST=6 # characters: a shorter value is found in too many words that are no secret
readonly SECRETS_LONGEST=4096 # bytes: of a longer one some may be left where a text was cut

# Sets SECRET_NAMES (more: VERLJOB_SECRET_NAMES=NAME,NAME).
secrets::find() {
    local name
    local -r more=${VERLJOB_SECRET_NAMES:-}
    SECRET_NAMES=()
    while IFS= read -r name; do
        [[ -n ${!name:-} ]] || continue
        if [[ "${SECRETS_ALWAYS//$'\n'/} ${more//,/ } " == *" $name "* ]] \
            || { environment::is_passed "$name" && secrets::_is_one "$name"; }; then
            SECRET_NAMES+=("$name")
        fi
    done < <(compgen -e)
}

# usage: secrets::_is_one NAME
secrets::_is_one() {
    [[ $1 =~ $SECRETS_NAMED || ${!1} =~ $SECRETS_IN_URL || ($1 =~ $SECRETS_PERHAPS_NAMED && "$1=${!1}" =~ $SECRETS_PATTERN) ]]
}

# usage: secrets::write FILE
secrets::write() {
    local name
    (umask 077 && : > "$1")
    for name in ${SECRET_NAMES[@]+"${SECRET_NAMES[@]}"}; do
        if [[ ${!name} == *$'\n'* ]]; then
            log::warn "$name has a line break in it and is left out"
        else
            printf '%s=%s\n' "$name" "${!name}" >> "$1"
        fi
    done
}

# usage: secrets::mask
# Copies stdin to stdout, without the job's own secrets and without what looks like one. It looks at two pieces at a
# time: what bash does with a string takes longer the longer it is, for every match. The second piece is kept for the
# next time, since a secret may go on in the third.
secrets::mask() {
    local LC_ALL=C piece rest text='' masked='' more=1 goes_on=''
    while [[ -n $more ]]; do
        IFS= read -r -d '' -N "$SECRETS_LONGEST" piece || more=''
        # shellcheck disable=SC2295 # the ranges count
        rest=${goes_on:+${piece%%[!$SECRETS_WORD]*}} # of one longer than any secret
        piece=${piece:${#rest}}
        [[ -z $piece ]] || goes_on=''
        text+=$piece
        secrets::_by_value
        secrets::_by_form
        text=$masked$text
        if [[ -n $more ]] && ((${#text} > SECRETS_LONGEST)); then
            printf '%s' "${text::${#text}-SECRETS_LONGEST}"
            text=${text: -SECRETS_LONGEST}
        fi
    done
    printf '%s' "$text"
}

# Changes the caller's text.
secrets::_by_value() {
    local name value
    for name in ${SECRET_NAMES[@]+"${SECRET_NAMES[@]}"} LOCAL_TOKEN; do
        value=${!name:-}
        ((${#value} < SECRETS_SHORTEST)) || text=${text//"$value"/***}
    done
}

# Moves the caller's text to its masked, up to the last match that begins in the first piece of the two.
secrets::_by_form() {
    local found mask before
    masked=''
    while [[ $text =~ $SECRETS_PATTERN ]]; do
        found=${BASH_REMATCH[0]}
        before=${text%%"$found"*}
        if [[ -n $more ]]; then
            ((${#text} - ${#before} > SECRETS_LONGEST)) || return 0
            ((${#before} + ${#found} < ${#text})) || goes_on=1
        fi
        case $found in
            ://*) mask='://***@' ;;
            [Pp][Rr][Oo][Xx][Yy]=*) mask="${found%%=*}=***@" ;;
            *=*) mask="${found%%=*}=***" ;;
            *) mask='***' ;;
        esac
        masked+=$before$mask
        text=${text:${#before}+${#found}}
        secrets::_again
    done
}

# Masks the same secret in the rest of the caller's text at once, where it stands as it was found: not as a part of
# another. A match for each would take long where there are thousands.
secrets::_again() {
    local left='' right=''
    [[ $found == *[=:]* ]] || left=${before: -1}
    [[ $found == *@ ]] || right=${text::1}
    if [[ ($found == *[=:]* || $left == [!$SECRETS_WORD]) && ($found == *@ || $right == [!$SECRETS_WORD]) ]]; then
        text=${text//"$left$found$right"/"$left$mask$right"}
    fi
}
