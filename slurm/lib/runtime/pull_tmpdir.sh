# shellcheck shell=bash disable=SC2034 # its variables are read by the runtimes
# Temporary TMPDIR of a pull, in which a killed client leaves layers.
# Sets: PULL_TMPDIR, RUNTIME_ERROR.

# usage: pull_tmpdir::run PARENT COMMAND…
# Runs COMMAND with its own TMPDIR in PARENT.
pull_tmpdir::run() {
    local code=0
    pull_tmpdir::_remove_stale "$1"
    PULL_TMPDIR=$(mktemp --directory -- "$1/verljob-pull.XXXXXX" 2>&1) || {
        RUNTIME_ERROR="$PULL_TMPDIR: the image is unpacked there, set TMPDIR to a folder of this node with room for it"
        return 1
    }
    TMPDIR=$PULL_TMPDIR "${@:2}" || code=$?
    pull_tmpdir::_remove
    return "$code"
}

# Tries five times, since a client that got TERM may still write.
pull_tmpdir::_remove() {
    local attempt
    for attempt in 1 2 3 4 5; do
        rm -rf -- "$PULL_TMPDIR" 2> /dev/null || : # tested next
        [[ -e $PULL_TMPDIR ]] || return 0
        sleep 0.2
    done
    log::warn "could not remove $PULL_TMPDIR"
}

# usage: pull_tmpdir::_remove_stale PARENT
# Removes those of this account's killed launches: older than the limit of a pull.
pull_tmpdir::_remove_stale() {
    local folder now made
    printf -v now '%(%s)T' -1
    for folder in "$1"/verljob-pull.*; do
        [[ -d $folder && ! -L $folder && -O $folder ]] || continue
        made=$(stat -c %Y -- "$folder") || continue # it has just been removed
        ((now - made <= RUNTIME_PULL_TIMEOUT_S)) || rm -rf -- "$folder"
    done
}
