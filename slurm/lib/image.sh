# shellcheck shell=bash
# Brings VERLJOB_IMAGE to this node: from a registry, from an archive on a shared folder, or what the node has.
# It is never built here.

# Sets IMAGE_ID, or ends with 66.
image::bring() {
    local -r began_ms=$(date +%s%3N)
    runtime::available
    if [[ $VERLJOB_IMAGE == */* && -f $VERLJOB_IMAGE ]]; then
        say::note "loading the archive $VERLJOB_IMAGE"
        runtime::load "$VERLJOB_IMAGE" || fail 66 "the archive $VERLJOB_IMAGE could not be loaded: $RUNTIME_SAID" \
            "write it again: docker save IMAGE > $VERLJOB_IMAGE"
    else
        [[ $VERLJOB_IMAGE != /* ]] || fail 66 "node $HOST sees no archive $VERLJOB_IMAGE" "put it on a folder that every node sees"
        image::_by_reference
    fi
    runtime::is_ours "$IMAGE_ID" || fail 64 "$VERLJOB_IMAGE is no image of this toolkit: it does not start /opt/verljob/entrypoint.sh" \
        "build one: ./run build --platform $VERLJOB_PLATFORM"
    say::note "image $VERLJOB_IMAGE is $IMAGE_ID"
    export VERLJOB_IMAGE_DIGEST=$IMAGE_ID VERLJOB_IMAGE_MS=$(($(date +%s%3N) - began_ms))
}

# A name without a slash belongs to no registry; one with a digest needs no second look when the node has it.
image::_by_reference() {
    local refused=''
    if [[ $VERLJOB_IMAGE == */* ]] && ! { [[ $VERLJOB_IMAGE == *@* ]] && runtime::find "$VERLJOB_IMAGE"; }; then
        say::note "pulling $VERLJOB_IMAGE"
        runtime::pull "$VERLJOB_IMAGE" || refused=$RUNTIME_SAID
        [[ -z $ENDING ]] || exit 143
        [[ -z $refused ]] || say::warn "the pull of $VERLJOB_IMAGE failed: $refused"
    fi
    runtime::find "$VERLJOB_IMAGE" || fail 66 "node $HOST has no image $VERLJOB_IMAGE${refused:+, and its pull failed: $refused}" \
        "push it to a registry that the nodes reach (VERLJOB_IMAGE=REGISTRY/NAME:TAG), or docker save it to a shared folder (VERLJOB_IMAGE=/PATH.tar), or docker load it on every node"
    [[ -z $refused ]] || say::note "using the $VERLJOB_IMAGE that the node has"
}
