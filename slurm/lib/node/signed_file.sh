# shellcheck shell=bash disable=SC2153 # HOST is launch.sh's or node.sh's
# VERLJOB_REQUIRE_SIGNATURE for a file that a runtime starts as it is (a SIF or squashfs): launch.sh verifies FILE.sig with
# cosign, and every node reads the file and compares its digest.
# Sets: VERLJOB_IMAGE_SHA256.

# Verifies the signature and sets VERLJOB_IMAGE_SHA256, or ends with 64, 66 or 77.
signed_file::pin() {
    local errors code=0
    local -r key=$VERLJOB_REQUIRE_SIGNATURE fix="have it signed: cosign sign-blob --key KEY --output-signature $VERLJOB_IMAGE.sig $VERLJOB_IMAGE"
    [[ -e $VERLJOB_IMAGE ]] || fail 66 "$HOST sees no $VERLJOB_IMAGE" "put it into a folder that every node sees"
    [[ -f $VERLJOB_IMAGE && -f $VERLJOB_IMAGE.sig ]] || fail 77 \
        "VERLJOB_REQUIRE_SIGNATURE demands a signature by $key, and there is no file $VERLJOB_IMAGE with its signature $VERLJOB_IMAGE.sig" "$fix"
    signed_file::require_own
    errors=$(mktemp "${VERLJOB_LOCAL:-/tmp}/verljob-cosign.XXXXXX") || fail 77 "cannot make a file in ${VERLJOB_LOCAL:-/tmp}" \
        "export VERLJOB_LOCAL=a node-local folder that you may write"
    process::run signed_file::_verify > /dev/null 2> "$errors" || code=$?
    signed_image::_read_error < "$errors"
    ((code)) || process::run sha256sum -- "$VERLJOB_IMAGE" > "$errors" || code=$?
    IFS=' ' read -r VERLJOB_IMAGE_SHA256 _ < "$errors" || : # it is matched below
    rm -f -- "$errors"
    [[ -z $ENDING ]] || fail 143 "stopped while cosign verified the image" ""
    ((code != 124 && code != 137)) || fail 66 "cosign on $HOST did not verify $VERLJOB_IMAGE within ${VERLJOB_PULL_TIMEOUT_S:-1800} s" "set VERLJOB_PULL_TIMEOUT_S"
    [[ $SIGNED_IMAGE_ERROR != *'public key'* ]] \
        || fail 64 "VERLJOB_REQUIRE_SIGNATURE is $key, which cosign cannot read: $SIGNED_IMAGE_ERROR" "name the file of a public key"
    [[ $code == 0 && $VERLJOB_IMAGE_SHA256 =~ ^[0-9a-f]{64}$ ]] \
        || fail 77 "$VERLJOB_IMAGE.sig is no signature of $VERLJOB_IMAGE by the owner of $key: $SIGNED_IMAGE_ERROR" "$fix"
    export VERLJOB_IMAGE_SHA256
    log::note "$VERLJOB_IMAGE, sha256:$VERLJOB_IMAGE_SHA256, is signed by the owner of $key"
}

# Runs in a subshell. cosign 2 reads the whole file into memory.
signed_file::_verify() {
    ulimit -c 0
    ulimit -f "$SIGNED_IMAGE_OUTPUT_KIB"
    exec timeout --kill-after=2 "${VERLJOB_PULL_TIMEOUT_S:-1800}" "$SIGNED_IMAGE_COSIGN" verify-blob --key "$VERLJOB_REQUIRE_SIGNATURE" \
        --signature "$VERLJOB_IMAGE.sig" --insecure-ignore-tlog=true -- "$VERLJOB_IMAGE" < /dev/null
}

# Ends with 77 if another account owns the file or its folder, or can write to one of them.
signed_file::require_own() {
    local owner mode
    # shellcheck disable=SC2034 # read by ownership::require: a group's members can change the file too
    local VERLJOB_SHARED_FOLDERS=''
    ownership::require "${VERLJOB_IMAGE%/*}/."
    read -r owner mode <<< "$(stat --dereference --format='%u %A' -- "$VERLJOB_IMAGE")"
    [[ ($owner == "$UID" || $owner == 0) && ${mode:5:1}${mode:8:1} == -- && ! -L $VERLJOB_IMAGE ]] \
        || fail 77 "$VERLJOB_IMAGE on $HOST can be changed by another account (owner $owner, $mode), or is a link" \
            "use a copy that only you or root can write, in such a folder"
}
