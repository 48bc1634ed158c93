# shellcheck shell=bash disable=SC2034 # its variables are read by launch.sh
# The run directory: created by launch.sh, at the same path on every node.
# Sets: RUNDIR_GIVEN, RUNDIR_JOB, RUNDIR_READY, RUNDIR_VERDICT_ID, VERLJOB_ATTEMPT, VERLJOB_CHECKPOINTS,
#   VERLJOB_OVERRIDES, VERLJOB_OVERRIDES_FILE, VERLJOB_RUN_DIR.

# Exports VERLJOB_ATTEMPT (from 1), VERLJOB_RUN_DIR and VERLJOB_CHECKPOINTS, which all attempts share; writes the overrides.
# Sets RUNDIR_READY once the run directory may be written to.
run_dir::make() {
    export VERLJOB_ATTEMPT=$((${SLURM_RESTART_COUNT:-0} + 1))
    RUNDIR_GIVEN='' RUNDIR_READY=''
    [[ -z ${VERLJOB_RUN_DIR:-} ]] || RUNDIR_GIVEN=$(run_dir::absolute "$VERLJOB_RUN_DIR")
    RUNDIR_JOB=${RUNDIR_GIVEN:-$(run_dir::absolute "verljob/$SLURM_JOB_ID")}
    export VERLJOB_CHECKPOINTS VERLJOB_RUN_DIR
    VERLJOB_CHECKPOINTS=$(run_dir::absolute "${VERLJOB_CHECKPOINTS:-$RUNDIR_JOB/checkpoints}")
    VERLJOB_RUN_DIR=$(run_dir::of_attempt "$VERLJOB_ATTEMPT")
    export VERLJOB_OVERRIDES VERLJOB_OVERRIDES_FILE=$VERLJOB_RUN_DIR/overrides
    VERLJOB_OVERRIDES=$(printf '%s\n' ${OVERRIDES[@]+"${OVERRIDES[@]}"})
    [[ -z ${VERLJOB_DRY_RUN:-} ]] || return 0
    ownership::make_folders "$VERLJOB_RUN_DIR" "$VERLJOB_RUN_DIR/nodes"
    run_dir::_require_own_contents
    RUNDIR_READY=yes
    # A directory that the user set may have results of an earlier job.
    rm -f -- "$VERLJOB_RUN_DIR"/{result.json,phases,explanation,expires,checkpoint} "$VERLJOB_RUN_DIR"/nodes/*/{verdict,bringing}
    rm -rf -- "$VERLJOB_RUN_DIR/.pulls"
    ownership::write "$VERLJOB_OVERRIDES_FILE" printf '%s' "${VERLJOB_OVERRIDES:+$VERLJOB_OVERRIDES$'\n'}"
}

# Checks the owner of the checkpoints, which verl unpickles, and of earlier folders of nodes.
run_dir::_require_own_contents() {
    local folder
    local -a present=()
    for folder in "$VERLJOB_CHECKPOINTS" "$VERLJOB_RUN_DIR"/nodes/*; do
        [[ ! -e $folder && ! -L $folder ]] || present+=("$folder")
    done
    ((${#present[@]} == 0)) || ownership::require "${present[@]}"
}

# usage: run_dir::absolute PATH
# A relative path starts at the submit folder.
run_dir::absolute() {
    (cd -- "$SLURM_SUBMIT_DIR" && realpath --canonicalize-missing --no-symlinks -- "$1")
}

# usage: run_dir::of_attempt N
# Prints the run directory of the job's N-th attempt. A path that the user set is that of the first attempt.
run_dir::of_attempt() {
    if [[ -n $RUNDIR_GIVEN && $1 == 1 ]]; then
        printf '%s\n' "$RUNDIR_GIVEN"
    else
        printf '%s\n' "$RUNDIR_JOB/attempt-$1"
    fi
}

# usage: run_dir::_verdict_file ID
run_dir::_verdict_file() {
    printf '%s\n' "$VERLJOB_RUN_DIR/nodes/$1-${NODES[$1]}/verdict"
}

# Sets VERDICT to that of the first node, head first, that ended on its own (RUNDIR_VERDICT_ID is its number), else to the
# first one. Returns 1 if no node left one.
run_dir::read_verdict() {
    local id file first=''
    RUNDIR_VERDICT_ID=''
    for id in "${!NODES[@]}"; do # in the order of the nodes
        file=$(run_dir::_verdict_file "$id")
        ownership::is_file "$file" || continue
        ! verdict::read_first_hand "$file" || { RUNDIR_VERDICT_ID=$id && run_dir::_prefer_subject; return 0; }
        first=${first:-$file}
    done
    [[ -n $first ]] || return 1
    verdict::read "$first"
}

# If the verdict is about another node, prefers that node's verdict about itself.
run_dir::_prefer_subject() {
    local id file
    for id in "${!NODES[@]}"; do
        [[ ${NODES[id]} == "${VERDICT[host]}" && $id != "$RUNDIR_VERDICT_ID" ]] || continue
        file=$(run_dir::_verdict_file "$id")
        ownership::is_file "$file" && verdict::read_first_hand "$file" && [[ ${VERDICT[host]} == "${NODES[id]}" ]] && RUNDIR_VERDICT_ID=$id && return 0
        verdict::read "$(run_dir::_verdict_file "$RUNDIR_VERDICT_ID")"
    done
}
