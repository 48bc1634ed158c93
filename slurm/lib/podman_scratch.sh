# shellcheck shell=bash disable=SC2034 # RUNTIME_SAID is read by image.sh
# Where podman puts what it pulls or loads before it is an image: a folder of its own, since a podman that is ended leaves its.

# usage: podman_scratch::with COMMAND…
podman_scratch::with() {
    local code=0
    podman_scratch::_sweep "${TMPDIR:-/var/tmp}"
    PODMAN_SCRATCH=$(mktemp --directory -- "${TMPDIR:-/var/tmp}/verljob-pull.XXXXXX" 2>&1) || {
        RUNTIME_SAID="$PODMAN_SCRATCH: podman unpacks there, set TMPDIR to a folder of this node with room for the image"
        return 1
    }
    TMPDIR=$PODMAN_SCRATCH "$@" || code=$?
    podman_scratch::_remove
    return "$code"
}

# One that was asked to end may still write.
podman_scratch::_remove() {
    local attempt
    for attempt in 1 2 3 4 5; do
        rm -rf -- "$PODMAN_SCRATCH" 2> /dev/null || : # looked at next
        [[ -e $PODMAN_SCRATCH ]] || return 0
        sleep 0.2
    done
    say::warn "could not remove $PODMAN_SCRATCH"
}

# usage: podman_scratch::_sweep PARENT
# Removes what our own killed launches left: no pull takes longer than its limit.
podman_scratch::_sweep() {
    local folder now made
    printf -v now '%(%s)T' -1
    for folder in "$1"/verljob-pull.*; do
        [[ -d $folder && ! -L $folder && -O $folder ]] || continue
        made=$(stat -c %Y -- "$folder") || continue # it has just gone
        ((now - made <= OCI_BRING_LIMIT_S)) || rm -rf -- "$folder"
    done
}
