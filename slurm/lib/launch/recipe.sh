# shellcheck shell=bash disable=SC2034 # its variables are read by launch.sh
# Parses `launch.sh [--debug [legacy]] [doctor [--deep]] [RECIPE] [override…]` and two keys of the recipe. verl_node reads
# the others.
# Sets: OVERRIDES, RECIPE, RECIPE_ACCELERATOR, RECIPE_NAME, RECIPE_PLATFORM, VERLJOB_DEBUG, VERLJOB_DOCTOR,
#   VERLJOB_JOIN_TIMEOUT_S.

readonly RECIPE_DEFAULT=gsm8k_ppo
# Seconds that `doctor` waits for nodes that have their image.
readonly RECIPE_DOCTOR_JOIN_S=60
# The shortest training that uses every part of the stack: `doctor --deep RECIPE`.
readonly -a RECIPE_ONE_STEP=(trainer.total_training_steps=1 trainer.save_freq=-1 trainer.test_freq=-1 trainer.val_before_train=false)

# usage: recipe::parse ARGUMENT...
# Sets RECIPE_NAME, RECIPE (file, or `cluster`), RECIPE_PLATFORM, RECIPE_ACCELERATOR (true or false) and OVERRIDES; exports
# VERLJOB_DEBUG and, for `doctor`, VERLJOB_DOCTOR. A recipe is a name of slurm/recipes, or a path that ends in .yaml.
recipe::parse() {
    recipe::_read_debug "$@"
    if [[ ${1:-} == --debug && ${2:-} == legacy ]]; then shift 2; elif [[ ${1:-} == --debug* ]]; then shift; fi
    RECIPE_NAME=$RECIPE_DEFAULT
    unset VERLJOB_DOCTOR
    if [[ ${1:-} == doctor ]]; then
        shift
        export VERLJOB_DOCTOR=quick VERLJOB_JOIN_TIMEOUT_S=${VERLJOB_JOIN_TIMEOUT_S:-$RECIPE_DOCTOR_JOIN_S}
        RECIPE_NAME=cluster
        [[ ${1:-} != --deep ]] || { VERLJOB_DOCTOR=deep && shift; }
    fi
    if (($# > 0)) && [[ $1 != *=* && $1 != [+~]* ]]; then
        RECIPE_NAME=$1
        shift
    fi
    OVERRIDES=("$@")
    [[ ${VERLJOB_DOCTOR:-} != deep || $RECIPE_NAME == cluster ]] || OVERRIDES+=("${RECIPE_ONE_STEP[@]}")
    recipe::_find
    recipe::_check_overrides
}

# usage: recipe::_read_debug ARGUMENT...
# Exports VERLJOB_DEBUG (1, legacy or empty) from the variable or the first flags.
recipe::_read_debug() {
    case ${1:-} in
        --debug) VERLJOB_DEBUG=1 && [[ ${2:-} != legacy ]] || VERLJOB_DEBUG=legacy ;;
        --debug=legacy) VERLJOB_DEBUG=legacy ;;
        -*) fail 64 "'$1' is not a flag of launch.sh" "use --debug or --debug legacy; flags of sbatch come before slurm/launch.sh" ;;
    esac
    export VERLJOB_DEBUG=${VERLJOB_DEBUG:-}
    [[ $VERLJOB_DEBUG =~ ^(1|legacy)?$ ]] \
        || fail 64 "VERLJOB_DEBUG=$VERLJOB_DEBUG" "write 1 (Ray's distributed debugger) or legacy (ray debug), or unset it"
    [[ $VERLJOB_DEBUG != 1 || ${VERLJOB_DASHBOARD:-} != 0 ]] \
        || fail 64 "Ray's debugger lists its processes in the dashboard, which VERLJOB_DASHBOARD=0 turns off" "unset one of them"
}

recipe::_find() {
    RECIPE=cluster RECIPE_PLATFORM=any RECIPE_ACCELERATOR=false
    [[ $RECIPE_NAME != cluster ]] || return 0
    [[ $RECIPE_NAME == *.yaml || $RECIPE_NAME =~ ^[a-z0-9_-]+$ ]] || recipe::_fail_unknown
    RECIPE=$VERLJOB_HOME/slurm/recipes/$RECIPE_NAME.yaml
    [[ $RECIPE_NAME != *.yaml ]] || RECIPE=$(cd -- "${SLURM_SUBMIT_DIR:-$PWD}" && realpath -- "$RECIPE_NAME")
    [[ -r $RECIPE ]] || recipe::_fail_unknown
    recipe::_read
}

recipe::_fail_unknown() {
    fail 64 "no recipe '$RECIPE_NAME'" "recipes are: $(log::file_names "$VERLJOB_HOME/slurm/recipes" .yaml) cluster doctor"
}

# Reads two keys by the one rule for shell: a line `key: value` at the margin, the value without blanks and quotes, then
# nothing or ` # comment`. Any other form (quotes, an anchor, a missing key) ends with 64.
recipe::_read() {
    local line
    local -r fix="write 'platform: NAME' and 'accelerator: true' (or false) at the margin, without quotes"
    RECIPE_PLATFORM='' RECIPE_ACCELERATOR=''
    while IFS= read -r line; do
        [[ $line == platform:* || $line == accelerator:* ]] || continue
        [[ $line =~ ^[a-z]+:[[:space:]]+([^[:space:]]+)[[:space:]]*([[:space:]]#.*)?$ ]] || fail 64 "$RECIPE says $line" "$fix"
        if [[ $line == platform:* ]]; then RECIPE_PLATFORM=${BASH_REMATCH[1]}; else RECIPE_ACCELERATOR=${BASH_REMATCH[1]}; fi
    done < "$RECIPE"
    [[ -n $RECIPE_PLATFORM ]] || fail 64 "$RECIPE has no line 'platform: NAME'" "$fix"
    env_table::require_name "platform: of $RECIPE" "$RECIPE_PLATFORM"
    [[ $RECIPE_ACCELERATOR == true || $RECIPE_ACCELERATOR == false ]] || fail 64 "$RECIPE says accelerator: $RECIPE_ACCELERATOR" "$fix"
}

recipe::_check_overrides() {
    local override key
    for override in ${OVERRIDES[@]+"${OVERRIDES[@]}"}; do
        key=${override%%=*}
        [[ $override == *=* || $override == '~'* ]] && [[ $key == *[!+~[:space:]]* ]] \
            || fail 64 "'$override' is not an override of the recipe $RECIPE_NAME" "write key=value, +key=value or ~key"
        [[ $override != *$'\n'* ]] || fail 64 "the override ${override%%=*} contains a line break" "write it on one line"
    done
}
