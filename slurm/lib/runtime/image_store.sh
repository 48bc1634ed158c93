# shellcheck shell=bash disable=SC2034 # its variables are read by the runtimes
# Store of images as files, for runtimes without an engine: a folder of the node, or VERLJOB_IMAGE_STORE for all nodes. A
# file is named after the digest of the manifest in its registry, and gets that name when it is whole.
# Sets: IMAGE_STORE, IMAGE_STORE_DIGEST, IMAGE_STORE_FILE, IMAGE_STORE_REFERENCE, RUNTIME_ERROR.

readonly IMAGE_STORE_KEEPS=3
IMAGE_STORE_FILE=''

# usage: image_store::open REFERENCE ENDING
# Sets IMAGE_STORE_REFERENCE (without the tag, which clients refuse beside a digest), IMAGE_STORE_DIGEST and the path
# IMAGE_STORE_FILE; returns 1 if REFERENCE has no digest. Ends with 64 or 77 if the folder cannot be used.
image_store::open() {
    local name=${1#docker://}
    if [[ ! $name =~ ^([A-Za-z0-9][A-Za-z0-9._/:-]*)@sha256:([0-9a-f]{64})$ ]]; then
        RUNTIME_ERROR="$VERLJOB_RUNTIME takes images of a registry by their digest only: NAME@sha256:<64 hex digits>"
        return 1
    fi
    name=${BASH_REMATCH[1]}
    [[ ${name##*/} != *:* ]] || name=${name%:*}
    IMAGE_STORE_DIGEST=sha256:${BASH_REMATCH[2]}
    IMAGE_STORE_REFERENCE=$name@$IMAGE_STORE_DIGEST
    IMAGE_STORE=${VERLJOB_IMAGE_STORE:-${VERLJOB_LOCAL:-/tmp}/verljob-images-$UID}
    [[ $IMAGE_STORE == /* ]] || fail 64 "VERLJOB_IMAGE_STORE is '$IMAGE_STORE'" "set it to the absolute path of a folder that every node sees"
    [[ -d $IMAGE_STORE || -L $IMAGE_STORE ]] || mkdir -p -- "$IMAGE_STORE" || fail 77 "cannot make $IMAGE_STORE on $HOST" \
        "set VERLJOB_IMAGE_STORE to a folder that you may write"
    image_store::_require_own "$IMAGE_STORE/."
    IMAGE_STORE_FILE=$IMAGE_STORE/${BASH_REMATCH[2]}.$2
}

# usage: image_store::_require_own FOLDER
# A group may share the job's folders; under a required signature also that is refused.
image_store::_require_own() {
    local VERLJOB_SHARED_FOLDERS=${VERLJOB_SHARED_FOLDERS:-}
    ! signed_image::is_required || VERLJOB_SHARED_FOLDERS=''
    ownership::require "$1"
}

# usage: image_store::fetch COMMAND…
# Makes IMAGE_STORE_FILE by COMMAND with the path of a new file. Nodes wait for each other, so it runs once for a store.
image_store::fetch() {
    local code=0
    if [[ -n ${VERLJOB_IMAGE_STORE:-} ]]; then
        log::note "$IMAGE_STORE_REFERENCE is fetched once for all nodes, into $IMAGE_STORE"
    else
        log::note "$IMAGE_STORE_REFERENCE is fetched by each node, at most ${VERLJOB_PULLS:-16} at once, into $IMAGE_STORE"
    fi
    file_lock::acquire "$IMAGE_STORE_FILE.lock" "$RUNTIME_PULL_TIMEOUT_S" || {
        RUNTIME_ERROR="another node or job holds $IMAGE_STORE_FILE.lock, or it cannot be written"
        return 1
    }
    # The client of a file server remembers that the file was absent, until its folder changes.
    mkdir -p -- "$IMAGE_STORE_FILE.new-$HOST" && rmdir -- "$IMAGE_STORE_FILE.new-$HOST"
    if [[ -f $IMAGE_STORE_FILE ]]; then
        log::note "another node or job has brought it"
    else
        image_store::_make "$@" || code=$?
    fi
    file_lock::release
    return "$code"
}

# usage: image_store::_make COMMAND…
image_store::_make() {
    local code=0
    local -r new=$IMAGE_STORE_FILE.new-$HOST-$RANDOM$RANDOM
    image_store::_prune
    "$@" "$new" || code=$?
    ((code)) || process::run sha256sum -- "$new" > "$new.sha256" || code=$?
    if ((code == 0)); then
        mv -f -T -- "$new.sha256" "$IMAGE_STORE_FILE.sha256" && mv -T -- "$new" "$IMAGE_STORE_FILE" || code=$?
    fi
    rm -f -- "$new" "$new.sha256"
    return "$code"
}

# Removes files of killed launches, and of the node's own store the images that were used longest ago. A container that uses
# one has it open.
image_store::_prune() {
    local file now made
    local -a kept
    printf -v now '%(%s)T' -1
    for file in "$IMAGE_STORE"/*.new-*; do
        [[ -f $file && -O $file ]] || continue
        made=$(stat -c %Y -- "$file") || continue # it has just been removed
        ((now - made <= RUNTIME_PULL_TIMEOUT_S)) || rm -f -- "$file"
    done
    [[ -z ${VERLJOB_IMAGE_STORE:-} ]] || return 0
    while kept=("$IMAGE_STORE"/*.sha256) && ((${#kept[@]} >= IMAGE_STORE_KEEPS)); do
        for file in "${kept[@]}"; do [[ ! $file -ot ${kept[0]} ]] || kept[0]=$file; done
        file=${kept[0]%.sha256}
        log::note "removing $file, which was used longest ago"
        rm -f -- "$file" "$file.sha256" "$file.lock"
    done
}

# Compares the file with the digest that was written when it was made; returns 1 if they differ.
image_store::verify() {
    local made=''
    image_store::_require_own "$IMAGE_STORE/."
    image_digest::compute "$IMAGE_STORE_FILE" || return 1
    { IFS= read -r -N 64 made < "$IMAGE_STORE_FILE.sha256"; } 2> /dev/null || : # it is compared next
    RUNTIME_ERROR="$IMAGE_STORE_FILE is not the file that was fetched: remove it"
    [[ $IMAGE_DIGEST == "sha256:$made" ]]
}

# Notes that the file is used now, for the choice of what to remove; a store that the account cannot write removes nothing.
image_store::touch() { [[ ! -w $IMAGE_STORE ]] || touch --no-create -- "$IMAGE_STORE_FILE.sha256"; }
