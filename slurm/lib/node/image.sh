# shellcheck shell=bash
# Gets VERLJOB_IMAGE on this node: a path (an archive, an environment's folder), or a reference of a registry or the engine.
# Sets: PULL_SLOT, VERLJOB_IMAGE, VERLJOB_IMAGE_DIGEST, VERLJOB_IMAGE_MS.

PULL_SLOT=''

# A path begins with / or ./; any other name is a reference, even if a file has that name.
image::is_path() { [[ $VERLJOB_IMAGE == /* || $VERLJOB_IMAGE == ./* ]]; }

# For launch.sh: makes a path absolute. Ends with 64 if a file has the reference's name.
image::resolve_path() {
    VERLJOB_IMAGE=${VERLJOB_IMAGE#docker://} # as Apptainer writes a reference
    local -r first=${VERLJOB_IMAGE%%/*}
    if image::is_path; then
        VERLJOB_IMAGE=$(run_dir::absolute "$VERLJOB_IMAGE")
    elif [[ $VERLJOB_IMAGE == */* && ($first == .. || $first != *[.:]*) && -e $SLURM_SUBMIT_DIR/$VERLJOB_IMAGE ]]; then
        fail 64 "VERLJOB_IMAGE=$VERLJOB_IMAGE is read as a registry's name, and $SLURM_SUBMIT_DIR has such a file" \
            "write ./$VERLJOB_IMAGE for the file, or docker.io/$VERLJOB_IMAGE for the name"
    fi
}

# Sets IMAGE_ID, or ends with 64, 66 or 77.
image::pull_or_load() {
    local began_ms
    process::now
    began_ms=$NOW_MS
    runtime::available
    signed_image::require_pinned
    if image::is_path; then
        log::note "loading $VERLJOB_IMAGE"
        [[ -e $VERLJOB_IMAGE ]] || fail 66 "node $HOST sees no $VERLJOB_IMAGE" "put it into a folder that every node sees"
        if ! image::_run_marked runtime::load "$VERLJOB_IMAGE"; then
            [[ -z $ENDING ]] || exit 143
            fail 66 "$VERLJOB_IMAGE cannot be used on $HOST: $RUNTIME_ERROR" "$(runtime::image_help)"
        fi
    else
        image::_pull
    fi
    signed_image::require_digest
    runtime::is_toolkit_image "$IMAGE_ID" || fail 64 "$VERLJOB_IMAGE is not an image of this toolkit: $RUNTIME_ERROR" "$(runtime::image_help)"
    log::note "image $VERLJOB_IMAGE is $IMAGE_ID"
    process::now
    export VERLJOB_IMAGE_DIGEST=$IMAGE_ID VERLJOB_IMAGE_MS=$((NOW_MS - began_ms))
}

# Skips the pull for a name without a slash, which is in no registry, and for a digest that the engine has.
image::_pull() {
    local refused=''
    if [[ $VERLJOB_IMAGE == */* ]] && ! { [[ $VERLJOB_IMAGE == *@* ]] && runtime::find "$VERLJOB_IMAGE"; }; then
        log::note "pulling $VERLJOB_IMAGE"
        image::acquire_pull_slot
        image::_run_marked runtime::pull "$VERLJOB_IMAGE" || refused=$RUNTIME_ERROR
        image::release_pull_slot
        [[ -z $ENDING ]] || exit 143
        [[ -z $refused ]] || log::warn "the pull of $VERLJOB_IMAGE failed: $refused"
    fi
    runtime::find "$VERLJOB_IMAGE" || fail 66 \
        "node $HOST has no image $VERLJOB_IMAGE${refused:+, and its pull failed}: ${refused:-$RUNTIME_ERROR}" "$(runtime::image_help)"
}

# usage: image::_run_marked COMMAND…
# Runs COMMAND while a marker file makes the head wait for this node's image.
image::_run_marked() {
    local code=0
    : > "$NODE_FOLDER/bringing"
    "$@" || code=$?
    rm -f -- "$NODE_FOLDER/bringing"
    return "$code"
}

# Waits while VERLJOB_PULLS nodes of the job pull, at most VERLJOB_PULL_TIMEOUT_S. A slot is a folder in the run directory:
# mkdir is atomic on every file system. Nodes that do not share it do not wait.
image::acquire_pull_slot() {
    local -r folder=$VERLJOB_RUN_DIR/.pulls deadline=$((SECONDS + ${VERLJOB_PULL_TIMEOUT_S:-1800}))
    local n
    mkdir -p -- "$folder" || return 0 # a full disk does not prevent the pull
    while ((SECONDS < deadline)); do
        for ((n = 1; n <= ${VERLJOB_PULLS:-16}; n++)); do
            if mkdir -- "$folder/$n" 2> /dev/null; then
                PULL_SLOT=$folder/$n
                return 0
            fi
        done
        sleep 0.2
    done
    log::warn "no free slot to pull after ${VERLJOB_PULL_TIMEOUT_S:-1800} s (VERLJOB_PULLS=${VERLJOB_PULLS:-16}): pulling without one"
}

# Releases the slot, if one is held.
image::release_pull_slot() {
    [[ -z $PULL_SLOT ]] || rmdir -- "$PULL_SLOT" || log::warn "could not release the pull slot $PULL_SLOT"
    PULL_SLOT=''
}
