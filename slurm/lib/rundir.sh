# shellcheck shell=bash disable=SC2034 # what it sets is read by launch.sh
# The run directory, made by launch.sh and known by the same path on every node.

# usage: rundir::make
# Sets and exports VERLJOB_ATTEMPT (1 at first, one more after each requeue) and VERLJOB_RUN_DIR; writes the overrides.
rundir::make() {
    export VERLJOB_ATTEMPT=$((${SLURM_RESTART_COUNT:-0} + 1))
    export VERLJOB_RUN_DIR=${VERLJOB_RUN_DIR:-$SLURM_SUBMIT_DIR/verljob/$SLURM_JOB_ID/attempt-$VERLJOB_ATTEMPT}
    VERLJOB_RUN_DIR=$(cd -- "$SLURM_SUBMIT_DIR" && realpath --canonicalize-missing --no-symlinks -- "$VERLJOB_RUN_DIR")
    export VERLJOB_OVERRIDES VERLJOB_OVERRIDES_FILE=$VERLJOB_RUN_DIR/overrides
    VERLJOB_OVERRIDES=$(printf '%s\n' ${OVERRIDES[@]+"${OVERRIDES[@]}"})
    [[ -z ${VERLJOB_DRY_RUN:-} ]] || return 0
    mkdir -p -- "$VERLJOB_RUN_DIR/nodes" && [[ -w $VERLJOB_RUN_DIR ]] \
        || fail 77 "cannot write to the run directory $VERLJOB_RUN_DIR" "export VERLJOB_RUN_DIR=a folder that every node can write"
    # A run directory that somebody named may have been used before: its last job must not speak for this one.
    rm -f -- "$VERLJOB_RUN_DIR/result.json" "$VERLJOB_RUN_DIR/.heard" "$VERLJOB_RUN_DIR"/nodes/*/verdict
    printf '%s' "${VERLJOB_OVERRIDES:+$VERLJOB_OVERRIDES$'\n'}" > "$VERLJOB_OVERRIDES_FILE"
}

# usage: rundir::_file ID
rundir::_file() {
    printf '%s\n' "$VERLJOB_RUN_DIR/nodes/$1-${NODES[$1]}/verdict"
}

# usage: rundir::heard LINE
# Notes which node.sh ended in order, by the line that it sends last. A verdict alone may be its container's.
rundir::heard() {
    local node
    IFS=$'\t' read -r _ node _ <<< "$1"
    printf '%s\n' "${node%%-*}" >> "$VERLJOB_RUN_DIR/.heard"
}

# Sets RUNDIR_SILENT to the nodes that were not heard of.
rundir::silent() {
    local id
    local -a heard=()
    [[ ! -e $VERLJOB_RUN_DIR/.heard ]] || mapfile -t heard < "$VERLJOB_RUN_DIR/.heard"
    rm -f -- "$VERLJOB_RUN_DIR/.heard"
    RUNDIR_SILENT=()
    for id in "${!NODES[@]}"; do
        [[ " ${heard[*]-} " == *" $id "* ]] || RUNDIR_SILENT+=("${NODES[id]}")
    done
}

# usage: rundir::verdict
# Sets VERDICT to the one that stands for the job: the head's when it ended by itself, else that of the lowest node
# that did (RUNDIR_SPEAKER is its number), else the head's. Returns 1 when no node left one.
rundir::verdict() {
    local id file first=''
    RUNDIR_SPEAKER=''
    for id in "${!NODES[@]}"; do # in the order of the nodes
        file=$(rundir::_file "$id")
        [[ -e $file ]] || continue
        ! verdict::read_origin "$file" || { RUNDIR_SPEAKER=$id; return 0; }
        first=${first:-$file}
    done
    [[ -n $first ]] || return 1
    verdict::read "$first"
}
