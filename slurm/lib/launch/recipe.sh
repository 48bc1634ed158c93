# shellcheck shell=bash disable=SC2034 # what it sets is read by launch.sh
# Chooses the recipe and reads its platform; verl_node reads the rest.
# Sets: OVERRIDES, RECIPE, RECIPE_ACCELERATOR, RECIPE_NAME, RECIPE_PLATFORM, VERLJOB_DOCTOR, VERLJOB_JOIN_TIMEOUT_S.

readonly RECIPE_DEFAULT=gsm8k_ppo
# A doctor waits no longer than this for nodes that have their image.
readonly RECIPE_DOCTOR_JOIN_S=60
# What makes a training the shortest one that touches everything: `doctor --deep RECIPE`.
readonly -a RECIPE_ONE_STEP=(trainer.total_training_steps=1 trainer.save_freq=-1 trainer.test_freq=-1 trainer.val_before_train=false)

# usage: recipe::names
recipe::names() {
    local file names=''
    for file in "$VERLJOB_HOME"/slurm/recipes/*.yaml; do
        [[ -e $file ]] || continue
        file=${file##*/}
        names+="${file%.yaml} "
    done
    printf '%scluster doctor\n' "$names"
}

# usage: recipe::choose ARGUMENT...
# Sets RECIPE_NAME, RECIPE (file, or `cluster`), RECIPE_PLATFORM, RECIPE_ACCELERATOR (true or false) and OVERRIDES. A
# recipe is a name of slurm/recipes, or the path of a file that ends in .yaml. `doctor [--deep] [RECIPE]` exports VERLJOB_DOCTOR.
recipe::choose() {
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
    RECIPE=$VERLJOB_HOME/slurm/recipes/$RECIPE_NAME.yaml RECIPE_PLATFORM=any RECIPE_ACCELERATOR=false
    if [[ $RECIPE_NAME == cluster ]]; then
        RECIPE=cluster
    else
        [[ $RECIPE_NAME == *.yaml || $RECIPE_NAME =~ ^[a-z0-9_-]+$ ]] \
            || fail 64 "no recipe '$RECIPE_NAME'" "recipes are: $(recipe::names)"
        [[ $RECIPE_NAME != *.yaml ]] || RECIPE=$(cd -- "${SLURM_SUBMIT_DIR:-$PWD}" && realpath -- "$RECIPE_NAME")
        [[ -r $RECIPE ]] || fail 64 "no recipe '$RECIPE_NAME'" "recipes are: $(recipe::names)"
        recipe::_read
    fi
    recipe::_check_overrides
}

# Reads two keys of a recipe: lines `platform: VALUE` and `accelerator: VALUE` at the margin, the value in plain words, with
# ` # comment` behind it or nothing. A recipe that says them otherwise (in quotes, by an anchor, not at all) ends with 64.
recipe::_read() {
    local line value
    RECIPE_PLATFORM='' RECIPE_ACCELERATOR=''
    while IFS= read -r line; do
        value=${line#*:}
        value=${value%%[[:space:]]#*}
        value=${value//[[:space:]]/}
        case $line in
            platform:*) RECIPE_PLATFORM=$value ;;
            accelerator:*) RECIPE_ACCELERATOR=$value ;;
        esac
    done < "$RECIPE"
    [[ -n $RECIPE_PLATFORM ]] || fail 64 "$RECIPE has no line 'platform: NAME'" "write one at the margin, without quotes: platform: any"
    env_table::require_name "platform: of $RECIPE" "$RECIPE_PLATFORM"
    [[ $RECIPE_ACCELERATOR == true || $RECIPE_ACCELERATOR == false ]] \
        || fail 64 "$RECIPE says accelerator: $RECIPE_ACCELERATOR" "write 'accelerator: true' or 'accelerator: false' at the margin, without quotes"
}

recipe::_check_overrides() {
    local override key
    for override in ${OVERRIDES[@]+"${OVERRIDES[@]}"}; do
        key=${override%%=*}
        [[ $override == *=* || $override == '~'* ]] && [[ $key == *[!+~[:space:]]* ]] \
            || fail 64 "'$override' is no override of the recipe $RECIPE_NAME" "write key=value, +key=value or ~key"
        [[ $override != *$'\n'* ]] || fail 64 "the override ${override%%=*} has a line break in it" "write it on one line"
    done
}
