# shellcheck shell=bash disable=SC2034 # what it sets is read by launch.sh
# The run directory: made by launch.sh, at the same path on every node.
# Sets: RUNDIR_JOB, RUNDIR_NAMED, RUNDIR_READY, RUNDIR_SPEAKER, VERLJOB_ATTEMPT, VERLJOB_CHECKPOINTS,
#   VERLJOB_OVERRIDES, VERLJOB_OVERRIDES_FILE, VERLJOB_RUN_DIR.

# usage: run_dir::make
# Sets and exports VERLJOB_ATTEMPT (1 at first, one more after each requeue), VERLJOB_RUN_DIR and VERLJOB_CHECKPOINTS,
# which all attempts share; writes the overrides. RUNDIR_READY says that the run directory may be written into.
run_dir::make() {
    export VERLJOB_ATTEMPT=$((${SLURM_RESTART_COUNT:-0} + 1))
    RUNDIR_NAMED='' RUNDIR_READY=''
    [[ -z ${VERLJOB_RUN_DIR:-} ]] || RUNDIR_NAMED=$(run_dir::_absolute "$VERLJOB_RUN_DIR")
    RUNDIR_JOB=${RUNDIR_NAMED:-$(run_dir::_absolute "verljob/$SLURM_JOB_ID")}
    export VERLJOB_CHECKPOINTS VERLJOB_RUN_DIR
    VERLJOB_CHECKPOINTS=$(run_dir::_absolute "${VERLJOB_CHECKPOINTS:-$RUNDIR_JOB/checkpoints}")
    VERLJOB_RUN_DIR=$(run_dir::of_attempt "$VERLJOB_ATTEMPT")
    export VERLJOB_OVERRIDES VERLJOB_OVERRIDES_FILE=$VERLJOB_RUN_DIR/overrides
    VERLJOB_OVERRIDES=$(printf '%s\n' ${OVERRIDES[@]+"${OVERRIDES[@]}"})
    [[ -z ${VERLJOB_DRY_RUN:-} ]] || return 0
    ownership::make "$VERLJOB_RUN_DIR" "$VERLJOB_RUN_DIR/nodes"
    run_dir::_look_at_what_is_there
    RUNDIR_READY=yes
    # A run directory that somebody named may have been used before: its last job must not speak for this one.
    rm -f -- "$VERLJOB_RUN_DIR"/{result.json,phases,explanation,expires,checkpoint} "$VERLJOB_RUN_DIR"/nodes/*/{verdict,bringing}
    rm -rf -- "$VERLJOB_RUN_DIR/.pulls"
    ownership::write "$VERLJOB_OVERRIDES_FILE" printf '%s' "${VERLJOB_OVERRIDES:+$VERLJOB_OVERRIDES$'\n'}"
}

# The checkpoints, which verl unpickles, and the nodes' folders of an earlier launch here.
run_dir::_look_at_what_is_there() {
    local folder
    local -a present=()
    for folder in "$VERLJOB_CHECKPOINTS" "$VERLJOB_RUN_DIR"/nodes/*; do
        [[ ! -e $folder && ! -L $folder ]] || present+=("$folder")
    done
    ((${#present[@]} == 0)) || ownership::require "${present[@]}"
}

# usage: run_dir::_absolute PATH
# A relative one is taken from the submit folder.
run_dir::_absolute() {
    (cd -- "$SLURM_SUBMIT_DIR" && realpath --canonicalize-missing --no-symlinks -- "$1")
}

# usage: run_dir::of_attempt N
# Prints the run directory of the job's N-th attempt. One that somebody named is the first attempt's as it stands.
run_dir::of_attempt() {
    if [[ -n $RUNDIR_NAMED && $1 == 1 ]]; then
        printf '%s\n' "$RUNDIR_NAMED"
    else
        printf '%s\n' "$RUNDIR_JOB/attempt-$1"
    fi
}

# usage: run_dir::_file ID
run_dir::_file() {
    printf '%s\n' "$VERLJOB_RUN_DIR/nodes/$1-${NODES[$1]}/verdict"
}

# usage: run_dir::verdict
# Sets VERDICT to the one that stands for the job: the head's when it ended by itself, else that of the lowest node
# that did (RUNDIR_SPEAKER is its number), else the head's. Returns 1 when no node left one.
run_dir::verdict() {
    local id file first=''
    RUNDIR_SPEAKER=''
    for id in "${!NODES[@]}"; do # in the order of the nodes
        file=$(run_dir::_file "$id")
        ownership::file "$file" || continue
        ! verdict::read_first_hand "$file" || { RUNDIR_SPEAKER=$id && run_dir::_first_hand; return 0; }
        first=${first:-$file}
    done
    [[ -n $first ]] || return 1
    verdict::read "$first"
}

# Who only saw another node go leaves the word to that node, if it left one about itself.
run_dir::_first_hand() {
    local id file
    for id in "${!NODES[@]}"; do
        [[ ${NODES[id]} == "${VERDICT[host]}" && $id != "$RUNDIR_SPEAKER" ]] || continue
        file=$(run_dir::_file "$id")
        ownership::file "$file" && verdict::read_first_hand "$file" && [[ ${VERDICT[host]} == "${NODES[id]}" ]] && RUNDIR_SPEAKER=$id && return 0
        verdict::read "$(run_dir::_file "$RUNDIR_SPEAKER")"
    done
}
