# shellcheck shell=bash
# The training command as a dry run prints it, where there may be neither Python nor the image. In a job verl_node makes
# it of the same recipe and translates it for an older verl; a test holds the two equal for the newest one.

# usage: training::_recipe
# Says the recipe's overrides, flat or nested, and sets TRAINING_MODULE, TRAINING_DATA and TRAINING_MODEL.
training::_recipe() {
    local line key value indent depth=0
    local -a parents=() indents=(0)
    while IFS= read -r line; do
        [[ $line =~ ^(\ *)([^#:\ ]+):(\ +(.*))?$ ]] || continue
        indent=${#BASH_REMATCH[1]} key=${BASH_REMATCH[2]} value=${BASH_REMATCH[4]%% #*}
        value=${value%"${value##*[![:space:]]}"}
        while ((depth > 0 && indents[depth] >= indent)); do depth=$((depth - 1)); done
        parents[depth]=''
        if [[ -z $value ]]; then
            ((depth == 0)) || parents[depth]=$key. # the outermost is the word overrides
            depth=$((depth + 1))
            indents[depth]=$indent
            continue
        fi
        case $indent$key in
            0module) TRAINING_MODULE=$value ;;
            0data) TRAINING_DATA=$value ;;
            0model) TRAINING_MODEL=$value ;;
            0*) ;;
            *) hydra::say "$(printf '%s' "${parents[@]:0:depth}")$key=${value//, /,}" ;;
        esac
    done < "$RECIPE"
}

# usage: training::_files SPLIT
# Prints the recipe's data sets as Hydra takes one file, or a list of several.
training::_files() {
    local name files=''
    local -a names
    IFS=', ' read -ra names <<< "${TRAINING_DATA//[\[\]]/}"
    for name in "${names[@]}"; do files+=,$(hydra::literal "$TRAINING_PLACE/$name/$1.parquet"); done
    if ((${#names[@]} > 1)); then printf '[%s]' "${files#,}"; else printf '%s' "${files#,}"; fi
}

# usage: training::_logger
# Prints the loggers: console and file always, wandb where it was asked for in the overrides or its key is here.
training::_logger() {
    local name loggers=console,file
    local -a names
    IFS=', ' read -ra names <<< "${HYDRA_SAID[trainer.logger]#*=}"
    for name in "${names[@]//[\[\]]/}"; do
        case $name in
            '' | console | file) ;;
            wandb) [[ -z ${WANDB_API_KEY+set} && " ${OVERRIDES[*]-}" != *' trainer.logger='* ]] || loggers+=,wandb ;;
            *) loggers+=,$name ;;
        esac
    done
    printf '[%s]' "$loggers"
}

# What the job knows better than the recipe. usage: training::_job NODES GPUS
training::_job() {
    local key
    hydra::say "trainer.nnodes=$1"
    hydra::say "trainer.n_gpus_per_node=$2"
    hydra::say "trainer.default_local_dir=$(hydra::literal "$VERLJOB_CHECKPOINTS")"
    hydra::say "hydra.run.dir=$(hydra::literal "$VERLJOB_RUN_DIR/hydra")"
    if [[ -n ${TRAINING_DATA//[\[\] ]/} ]]; then
        hydra::say "data.train_files=$(training::_files train)"
        hydra::say "data.val_files=$(training::_files test)"
    fi
    [[ $TRAINING_MODEL != demo:* ]] || TRAINING_MODEL=$TRAINING_PLACE/models/${TRAINING_MODEL#demo:}
    [[ $TRAINING_MODEL != null ]] || return 0
    for key in actor_rollout_ref critic; do hydra::say "$key.model.path=$(hydra::literal "$TRAINING_MODEL")"; done
}

# usage: training::command NODES GPUS
# Prints it, behind the variables that it and, by ray_kwargs, its workers get.
training::command() {
    local TRAINING_MODULE='' TRAINING_DATA='' TRAINING_MODEL='' word
    local -r TRAINING_PLACE=${VERLJOB_DATA:-$HOME/.cache/verljob}
    local -ra shared=(HF_HUB_OFFLINE=1 "VERL_FILE_LOGGER_PATH=$VERLJOB_RUN_DIR/verl.jsonl")
    local -a words=()
    training::_recipe
    TRAINING_MODEL=${VERLJOB_MODEL:-$TRAINING_MODEL}
    training::_job "$1" "$2"
    for word in ${OVERRIDES[@]+"${OVERRIDES[@]}"}; do hydra::say "$word"; done
    hydra::say "trainer.logger=$(training::_logger)"
    for word in "${shared[@]}"; do
        hydra::say "+ray_kwargs.ray_init.runtime_env.env_vars.${word%%=*}=$(hydra::quoted "${word#*=}")"
    done
    for word in "${HYDRA_KEYS[@]}"; do words+=("${HYDRA_SAID[$word]}"); done
    log::command env "${shared[@]}" HYDRA_FULL_ERROR=1 PYTHONUNBUFFERED=1 python3 -m "$TRAINING_MODULE" "${words[@]}"
}
