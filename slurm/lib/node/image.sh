# shellcheck shell=bash
# Brings VERLJOB_IMAGE to this node: by a path (an archive, an environment's folder), from a registry, or what the node
# has. It is never built here.
# Sets: VERLJOB_IMAGE, VERLJOB_IMAGE_DIGEST, VERLJOB_IMAGE_MS.

# usage: image::is_path
# A path begins with / or ./ and every other name is a registry's or the engine's, whatever file has that name too.
image::is_path() { [[ $VERLJOB_IMAGE == /* || $VERLJOB_IMAGE == ./* ]]; }

# usage: image::read_name
# For launch.sh: makes a path absolute, for every node. Ends with 64 where a file was probably meant.
image::read_name() {
    local -r first=${VERLJOB_IMAGE%%/*}
    if image::is_path; then
        VERLJOB_IMAGE=$(run_dir::_absolute "$VERLJOB_IMAGE")
    elif [[ $VERLJOB_IMAGE == */* && ($first == .. || $first != *[.:]*) && -e $SLURM_SUBMIT_DIR/$VERLJOB_IMAGE ]]; then
        fail 64 "VERLJOB_IMAGE=$VERLJOB_IMAGE is read as a registry's name, and $SLURM_SUBMIT_DIR has such a file" \
            "write ./$VERLJOB_IMAGE for the file, or docker.io/$VERLJOB_IMAGE for the name"
    fi
}

# Sets IMAGE_ID, or ends with 66.
image::bring() {
    local began_ms
    process::now
    began_ms=$NOW_MS
    runtime::available
    signed_image::require_pinned
    if image::is_path; then
        log::note "taking $VERLJOB_IMAGE"
        [[ -e $VERLJOB_IMAGE ]] || fail 66 "node $HOST sees no $VERLJOB_IMAGE" "put it on a folder that every node sees"
        image::_bringing runtime::load "$VERLJOB_IMAGE" || fail 66 "$VERLJOB_IMAGE cannot be used on $HOST: $RUNTIME_SAID" "$(runtime::ways)"
    else
        image::_by_reference
    fi
    signed_image::compare
    runtime::is_ours "$IMAGE_ID" || fail 64 "$VERLJOB_IMAGE is no image of this toolkit: $RUNTIME_SAID" "$(runtime::ways)"
    log::note "image $VERLJOB_IMAGE is $IMAGE_ID"
    process::now
    export VERLJOB_IMAGE_DIGEST=$IMAGE_ID VERLJOB_IMAGE_MS=$((NOW_MS - began_ms))
}

# A name without a slash belongs to no registry; one with a digest needs no second look when the node has it.
image::_by_reference() {
    local refused=''
    if [[ $VERLJOB_IMAGE == */* ]] && ! { [[ $VERLJOB_IMAGE == *@* ]] && runtime::find "$VERLJOB_IMAGE"; }; then
        log::note "pulling $VERLJOB_IMAGE"
        pull_slots::take
        image::_bringing runtime::pull "$VERLJOB_IMAGE" || refused=$RUNTIME_SAID
        pull_slots::give
        [[ -z $ENDING ]] || exit 143
        [[ -z $refused ]] || log::warn "the pull of $VERLJOB_IMAGE failed: $refused"
    fi
    runtime::find "$VERLJOB_IMAGE" || fail 66 \
        "node $HOST has no image $VERLJOB_IMAGE${refused:+, and its pull failed}: ${refused:-$RUNTIME_SAID}" "$(runtime::ways)"
}

# usage: image::_bringing COMMAND…
# Runs it while a file in the run directory tells the head that this node is still at its image.
image::_bringing() {
    local code=0
    : > "$NODE_FOLDER/bringing"
    "$@" || code=$?
    rm -f -- "$NODE_FOLDER/bringing"
    return "$code"
}
