# shellcheck shell=bash disable=SC2153 # HOST is node.sh's
# Whether an image is signed by who must have signed it (VERLJOB_REQUIRE_SIGNATURE, a public key): asked of its registry by
# every node, for the digest that the node then runs. `invoke push --key` and cosign sign: docs/images.md.

# usage: signature::require
# Makes VERLJOB_IMAGE a name with the digest that was verified, or ends with 64, 66, 69 or 77.
signature::require() {
    [[ -n ${VERLJOB_REQUIRE_SIGNATURE:-} ]] || return 0
    local -r key=$VERLJOB_REQUIRE_SIGNATURE
    local folder tool checked=true
    for tool in openssl curl; do
        command -v "$tool" > /dev/null || fail 69 "there is no $tool on $HOST, which VERLJOB_REQUIRE_SIGNATURE needs" "install it there"
    done
    openssl pkey -pubin -in "$key" -noout 2> /dev/null || fail 64 "VERLJOB_REQUIRE_SIGNATURE is $key, which is no public key that $HOST can read" \
        "name the file that openssl pkey -pubout wrote, by a path that every node has"
    if [[ $VERLJOB_IMAGE == /* || -e $VERLJOB_IMAGE ]] || ! registry::of "$VERLJOB_IMAGE"; then
        fail 64 "a signature lies beside an image in its registry, and VERLJOB_IMAGE=$VERLJOB_IMAGE names none" \
            "./run push --key signs it there: VERLJOB_IMAGE=REGISTRY/NAME:TAG or @DIGEST"
    fi
    folder=$(mktemp -d "${VERLJOB_LOCAL:-/tmp}/verljob-signature.XXXXXX") || fail 77 "cannot make a folder in ${VERLJOB_LOCAL:-/tmp}" \
        "export VERLJOB_LOCAL=a node-local folder that you may write"
    signature::_check "$key" "$folder" || checked=false
    rm -rf -- "$folder"
    [[ -z $ENDING ]] || exit 143
    $checked || fail "$SIGNATURE_CODE" "$SIGNATURE_CAUSE" "$SIGNATURE_FIX"
    VERLJOB_IMAGE=$REGISTRY_NAME@$SIGNATURE_DIGEST
    say::note "$VERLJOB_IMAGE is signed by the owner of $key"
}

# usage: signature::_no CODE CAUSE FIX
signature::_no() {
    SIGNATURE_CODE=$1 SIGNATURE_CAUSE=$2 SIGNATURE_FIX=$3
    return 1
}

# usage: signature::_silent WHAT
signature::_silent() {
    local answer=$REGISTRY_CODE
    [[ $answer != 000 ]] || answer="nothing (${REGISTRY_SAID##*$'\n'})"
    signature::_no 66 "$REGISTRY_URL answers $answer when $HOST asks for $1" \
        "see whether the name is right, the registry up and the login there: docker login $REGISTRY_HOST"
}

# usage: signature::_check KEY FOLDER
# Sets SIGNATURE_DIGEST to what the reference names now, where KEY's owner signed that.
signature::_check() {
    local digest payload others=false
    registry::get "manifests/$REGISTRY_TAG" "$2/image" || { signature::_silent "$VERLJOB_IMAGE"; return 1; }
    signature::_hash "$2/image"
    SIGNATURE_DIGEST=$SIGNATURE_HASH
    [[ $REGISTRY_TAG != sha256:* || $REGISTRY_TAG == "$SIGNATURE_DIGEST" ]] \
        || { signature::_no 77 "$REGISTRY_HOST gives an image of digest $SIGNATURE_DIGEST for $VERLJOB_IMAGE" "tell the registry's operators"; return 1; }
    if ! registry::get "manifests/${SIGNATURE_DIGEST/:/-}.sig" "$2/list"; then
        [[ $REGISTRY_CODE == 404 ]] || { signature::_silent "the signature of $VERLJOB_IMAGE"; return 1; }
        signature::_no 77 "$VERLJOB_IMAGE ($SIGNATURE_DIGEST) is not signed, and VERLJOB_REQUIRE_SIGNATURE wants $1" "$SIGNATURE_WAYS"
        return 1
    fi
    signature::_read "$2/list"
    for digest in ${SIGNATURE_PAYLOADS[@]+"${SIGNATURE_PAYLOADS[@]}"}; do
        payload=$2/${digest#sha256:}
        registry::get "blobs/$digest" "$payload" || { signature::_silent "the signature of $VERLJOB_IMAGE"; return 1; }
        if signature::_signed "$1" "$payload"; then
            ! signature::_about "$payload" "$SIGNATURE_DIGEST" || return 0
            others=true
        fi
    done
    ! $others || signature::_no 77 "the signature beside $VERLJOB_IMAGE ($SIGNATURE_DIGEST) is for another image" "$SIGNATURE_WAYS" || return 1
    signature::_no 77 "$VERLJOB_IMAGE ($SIGNATURE_DIGEST) is signed, but not by the owner of $1" "$SIGNATURE_WAYS"
}

readonly SIGNATURE_WAYS='have it signed (./run push --key), or name an image that is: VERLJOB_IMAGE=REGISTRY/NAME@DIGEST'

# usage: signature::_hash FILE
signature::_hash() {
    SIGNATURE_HASH=$(sha256sum < "$1")
    SIGNATURE_HASH=sha256:${SIGNATURE_HASH%% *}
}

# usage: signature::_read MANIFEST
# Sets SIGNATURE_PAYLOADS (digests of what may have been signed) and SIGNATURE_VALUES. Which belongs to which is not read:
# only a signature over a payload can verify it.
signature::_read() {
    local text found
    text=$(tr -d '[:space:]' < "$1")
    text=${text#*'"layers":['}
    SIGNATURE_PAYLOADS=() SIGNATURE_VALUES=()
    text=${text%%'"subject":'*}
    while [[ $text =~ \"(digest|dev\.cosignproject\.cosign/signature)\":\"([^\"]+)\"(.*) ]]; do
        found=${BASH_REMATCH[2]} text=${BASH_REMATCH[3]}
        if [[ ${BASH_REMATCH[1]} != digest ]]; then
            SIGNATURE_VALUES+=("$found")
        elif [[ $found =~ ^sha256:[0-9a-f]{64}$ ]]; then
            SIGNATURE_PAYLOADS+=("$found")
        fi
    done
}

# usage: signature::_signed KEY PAYLOAD
signature::_signed() {
    local value
    for value in ${SIGNATURE_VALUES[@]+"${SIGNATURE_VALUES[@]}"}; do
        printf '%s' "$value" | openssl base64 -d -A -out "$2.sig" 2> /dev/null || continue
        ! openssl dgst -sha256 -verify "$1" -signature "$2.sig" "$2" > /dev/null 2>&1 || return 0
    done
    return 1
}

# usage: signature::_about PAYLOAD DIGEST
signature::_about() {
    [[ $(tr -d '[:space:]' < "$1") == *"\"docker-manifest-digest\":\"$2\""* ]]
}
