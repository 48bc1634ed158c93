# shellcheck shell=bash disable=SC2034 # IMAGE_ID is read by node.sh
# The digest of a file or folder that is an image, by which the head compares the nodes. It is of the whole content, so it
# is made once: it stands in FILE.sha256, or one node of the job makes it for those that see the same file.
# Sets: IMAGE_DIGEST, IMAGE_ID, RUNTIME_ERROR.

# usage: image_digest::make PATH
# Sets IMAGE_ID. If a signature is required, of the content as this node reads it.
image_digest::make() {
    if signed_image::is_required; then
        image_digest::compute "$1" || return 1
    elif [[ $1 -nt $1.sha256 ]] || ! image_digest::_read "$1.sha256"; then
        image_digest::_share "$1" || image_digest::compute "$1" || return 1
    fi
    IMAGE_ID=$IMAGE_DIGEST
}

# usage: image_digest::_share PATH
# Takes the digest that another node of the job has made, or makes it for the others; returns 1 if there is none. A file is
# the same if it has the same inode, size and times.
image_digest::_share() {
    local key record
    key=$(stat --dereference --format='%i-%s-%.9Y-%.9Z' -- "$1") || return 1
    record=$VERLJOB_RUN_DIR/.image-$key
    file_lock::acquire "$record.lock" "$RUNTIME_PULL_TIMEOUT_S" || return 1
    if ! image_digest::_read "$record"; then
        log::note "reading the whole of $1 for its digest (sha256sum of a file, kept as $1.sha256, saves that)"
        ! image_digest::compute "$1" || ownership::write "$record" printf '%s\n' "${IMAGE_DIGEST#sha256:}" || log::warn "could not write $record"
    fi
    file_lock::release
    image_digest::_read "$record"
}

# usage: image_digest::_read FILE
# Sets IMAGE_DIGEST to the first word of a file as sha256sum writes it; returns 1 if it is none.
image_digest::_read() {
    local word=''
    [[ -f $1 && -r $1 ]] && IFS= read -r -N 64 word < "$1" && [[ $word =~ ^[0-9a-f]{64}$ ]] || return 1
    IMAGE_DIGEST=sha256:$word
}

# usage: image_digest::compute PATH
# Sets IMAGE_DIGEST.
image_digest::compute() {
    local code=0
    local -r output=$NODE_FOLDER/image-digest
    local -a command=(sha256sum -- "$1")
    [[ ! -d $1 ]] || command=(image_digest::_digest_tree "$1")
    process::run "${command[@]}" > "$output" 2> "$output.errors" || code=$?
    ((code)) || image_digest::_read "$output" || code=1
    RUNTIME_ERROR=$(tail -n 1 -- "$output.errors")
    rm -f -- "$output" "$output.errors"
    return "$code"
}

image_digest::_digest_tree() { image_digest::_print_tree "$1" | sha256sum; }

# usage: image_digest::_print_tree FOLDER
# Prints names, modes and link targets in FOLDER and the digests of its files, in batches that fit into a command. Times differ
# between copies. Runs in a subshell.
image_digest::_print_tree() {
    local LC_ALL=C first name
    local -a names batch files
    cd -- "$1" || return 1
    shopt -s globstar dotglob nullglob
    names=(**)
    for ((first = 0; first < ${#names[@]}; first += 500)); do
        batch=("${names[@]:first:500}") files=()
        LC_ALL=C QUOTING_STYLE=shell-escape stat --format='%f %N' -- "${batch[@]}" || return 1
        for name in "${batch[@]}"; do [[ ! -f $name || -L $name ]] || files+=("$name"); done
        ((${#files[@]} == 0)) || sha256sum -- "${files[@]}" || return 1
    done
}
