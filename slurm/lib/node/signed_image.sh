# shellcheck shell=bash disable=SC2153 # HOST is launch.sh's or node.sh's
# VERLJOB_REQUIRE_SIGNATURE, a public key: launch.sh verifies VERLJOB_IMAGE with cosign, from its registry and without a
# transparency log, and every node runs the verified digest or ends with 77.
# Sets: HTTP_PROXY, SIGNED_IMAGE_CODE, SIGNED_IMAGE_COSIGN, SIGNED_IMAGE_DIGEST, SIGNED_IMAGE_DIGESTS,
#   SIGNED_IMAGE_ERROR, SIGNED_IMAGE_HOST, SIGNED_IMAGE_NAME, VERLJOB_IMAGE.

readonly SIGNED_IMAGE_LIMIT_S=60       # for cosign, with its own retries
readonly SIGNED_IMAGE_OUTPUT_KIB=1024  # of cosign; 1000 signatures need less
readonly SIGNED_IMAGE_FIX='have it signed (./run push --key), or name an image that is: VERLJOB_IMAGE=REGISTRY/NAME@DIGEST'

signed_image::is_required() { [[ -n ${VERLJOB_REQUIRE_SIGNATURE:-} ]]; }

# If a signature is required, verifies it and sets VERLJOB_IMAGE to NAME@DIGEST, or ends with 64, 66 or 77.
signed_image::pin() {
    local folder
    signed_image::is_required || return 0
    signed_image::_require_key
    if image::is_path && signed_image::_ask_runtime starts_files; then
        signed_image::_find_cosign
        signed_file::pin
        return
    fi
    signed_image::_require_reference
    signed_image::_find_cosign
    folder=$(mktemp -d "${VERLJOB_LOCAL:-/tmp}/verljob-cosign.XXXXXX") || fail 77 "cannot make a folder in ${VERLJOB_LOCAL:-/tmp}" \
        "export VERLJOB_LOCAL=a node-local folder that you may write"
    signed_image::_verify "$folder"
    rm -rf -- "$folder"
    [[ -z $ENDING ]] || fail 143 "stopped while cosign verified the image" ""
    signed_image::_check_result
    VERLJOB_IMAGE=${SIGNED_IMAGE_NAME}@$SIGNED_IMAGE_DIGEST
    log::note "$VERLJOB_IMAGE is signed by the owner of $VERLJOB_REQUIRE_SIGNATURE"
}

signed_image::_require_key() {
    local -r key=$VERLJOB_REQUIRE_SIGNATURE
    [[ $key == /* && -f $key && -r $key ]] || fail 64 "VERLJOB_REQUIRE_SIGNATURE is $key, which is not a file that $HOST can read" \
        "name the public key (openssl pkey -pubout, cosign.pub) by its absolute path"
}

# Sets SIGNED_IMAGE_NAME (without tag and digest) and SIGNED_IMAGE_HOST (empty for Docker Hub).
signed_image::_require_reference() {
    [[ $VERLJOB_IMAGE == */* && $VERLJOB_IMAGE =~ ^[A-Za-z0-9][A-Za-z0-9._:/@-]*$ ]] || fail 77 \
        "VERLJOB_REQUIRE_SIGNATURE demands a signature in the image's registry, and VERLJOB_IMAGE=$VERLJOB_IMAGE is in none" \
        "push and sign it (./run push --key): VERLJOB_IMAGE=REGISTRY/NAME:TAG or REGISTRY/NAME@DIGEST"
    SIGNED_IMAGE_NAME=${VERLJOB_IMAGE%%@*}
    [[ ${SIGNED_IMAGE_NAME##*/} != *:* ]] || SIGNED_IMAGE_NAME=${SIGNED_IMAGE_NAME%:*}
    SIGNED_IMAGE_HOST=${SIGNED_IMAGE_NAME%%/*}
    [[ $SIGNED_IMAGE_HOST == *[.:]* || $SIGNED_IMAGE_HOST == localhost ]] || SIGNED_IMAGE_HOST=''
}

# Sets SIGNED_IMAGE_COSIGN.
signed_image::_find_cosign() {
    local -r named=${VERLJOB_COSIGN:-}
    SIGNED_IMAGE_COSIGN=${named:-$(type -P cosign || :)} # an empty path is refused next
    [[ $SIGNED_IMAGE_COSIGN == /* && -x $SIGNED_IMAGE_COSIGN ]] || fail 77 \
        "VERLJOB_REQUIRE_SIGNATURE demands a signature, and there is no cosign to verify it on $HOST${named:+: VERLJOB_COSIGN is $named}" \
        "install cosign 2.5 or newer on the nodes (the first of a job runs it), or set VERLJOB_COSIGN=its absolute path in the profile"
}

# usage: signed_image::_verify FOLDER
# Sets SIGNED_IMAGE_CODE (cosign's; 124 or 137 after the limit), SIGNED_IMAGE_ERROR and SIGNED_IMAGE_DIGESTS.
signed_image::_verify() {
    local -r ca=/etc/docker/certs.d/$SIGNED_IMAGE_HOST/ca.crt
    local run=signed_image::_cosign_over_tls
    local -a flags=(--key "$VERLJOB_REQUIRE_SIGNATURE" --insecure-ignore-tlog=true --check-claims=true --output json)
    [[ -z $SIGNED_IMAGE_HOST || ! -r $ca ]] || flags+=(--registry-cacert "$ca")
    if signed_image::_registry_is_insecure; then
        run=signed_image::_cosign
        flags+=(--allow-http-registry=true --allow-insecure-registry=true) # 2.5 requires the second for plain http
    fi
    SIGNED_IMAGE_CODE=0
    process::run "$run" "${flags[@]}" -- "$VERLJOB_IMAGE" > "$1/output" 2> "$1/errors" || SIGNED_IMAGE_CODE=$?
    signed_image::_read_digests < "$1/output"
    signed_image::_read_error < "$1/errors"
}

# usage: signed_image::_cosign ARGUMENT…
# Runs in a subshell.
signed_image::_cosign() {
    ulimit -c 0
    ulimit -f "$SIGNED_IMAGE_OUTPUT_KIB"
    exec timeout --kill-after=2 "$SIGNED_IMAGE_LIMIT_S" "$SIGNED_IMAGE_COSIGN" verify "$@" < /dev/null
}

# usage: signed_image::_cosign_over_tls ARGUMENT…
# Makes plain http fail, by a proxy that cannot exist: cosign would follow a registry to it for a token (with the login), to
# its storage, and in a private network by default. Go ignores the variable for https and for the loopback.
signed_image::_cosign_over_tls() {
    export HTTP_PROXY=http://127.0.0.1:0 http_proxy=http://127.0.0.1:0
    [[ -n ${HTTPS_PROXY:-${https_proxy:-}} ]] || unset NO_PROXY no_proxy
    signed_image::_cosign "$@"
}

# Tests whether this node's engine uses the registry without TLS.
signed_image::_registry_is_insecure() {
    [[ -n $SIGNED_IMAGE_HOST ]] && signed_image::_ask_runtime registry_is_insecure "$SIGNED_IMAGE_HOST"
}

# usage: signed_image::_ask_runtime FUNCTION ARGUMENT…
# In a subshell, since launch.sh has no runtime loaded.
signed_image::_ask_runtime() (
    # shellcheck source=/dev/null # checked on its own
    source "$VERLJOB_HOME/slurm/lib/runtime/runtime.sh"
    "runtime::$1" "${@:2}"
)

# Sets SIGNED_IMAGE_DIGESTS to the values of docker-manifest-digest in cosign's JSON. A quote in a string has a backslash
# before it, so a string cannot look like a key.
signed_image::_read_digests() {
    local text name='' colon=''
    SIGNED_IMAGE_DIGESTS=()
    while IFS= read -r -d '"' text; do
        [[ $name != docker-manifest-digest || ! $colon =~ ^[[:space:]]*:[[:space:]]*$ ]] || SIGNED_IMAGE_DIGESTS+=("$text")
        name=$colon colon=$text
    done
}

# Sets SIGNED_IMAGE_ERROR to the first line of cosign's error, which may contain text of the registry.
signed_image::_read_error() {
    local line
    SIGNED_IMAGE_ERROR='cosign printed no error'
    while IFS= read -r line; do
        [[ $line == 'Error: '* ]] || continue
        line=${line:7:300}
        SIGNED_IMAGE_ERROR=${line//[![:print:]]/?}
        return
    done
}

# Sets SIGNED_IMAGE_DIGEST, or ends. Exit codes of cosign 2 and 3: 10 no signature, 12 no valid one.
signed_image::_check_result() {
    local digest
    local -r key=$VERLJOB_REQUIRE_SIGNATURE
    case $SIGNED_IMAGE_CODE:$SIGNED_IMAGE_ERROR in
        0:*) ;;
        10:*) fail 77 "$VERLJOB_IMAGE is not signed, and VERLJOB_REQUIRE_SIGNATURE demands a signature by $key" "$SIGNED_IMAGE_FIX" ;;
        12:'no matching signatures: GET '* | 12:'no matching signatures: Get '*) signed_image::_fail_unverified ;;
        12:*) fail 77 "$VERLJOB_IMAGE is signed, but not this image by the owner of $key: $SIGNED_IMAGE_ERROR" "$SIGNED_IMAGE_FIX" ;;
        1:*'public key'*) fail 64 "VERLJOB_REQUIRE_SIGNATURE is $key, which cosign cannot read: $SIGNED_IMAGE_ERROR" "name the file of a public key" ;;
        *) signed_image::_fail_unverified ;;
    esac
    SIGNED_IMAGE_DIGEST=${SIGNED_IMAGE_DIGESTS[0]-}
    for digest in "$SIGNED_IMAGE_DIGEST" ${SIGNED_IMAGE_DIGESTS[@]+"${SIGNED_IMAGE_DIGESTS[@]}"}; do
        [[ $digest =~ ^sha256:[0-9a-f]{64}$ && $digest == "$SIGNED_IMAGE_DIGEST" ]] \
            || fail 77 "cosign verified $VERLJOB_IMAGE and did not name one digest: ${digest:0:100}" \
                "run $SIGNED_IMAGE_COSIGN verify --key $key $VERLJOB_IMAGE on $HOST"
    done
    [[ $VERLJOB_IMAGE != *@* || ${VERLJOB_IMAGE#*@} == "$SIGNED_IMAGE_DIGEST" ]] \
        || fail 77 "cosign verified $SIGNED_IMAGE_DIGEST, and VERLJOB_IMAGE is $VERLJOB_IMAGE" "inform the registry's operators"
}

signed_image::_fail_unverified() {
    local error=$SIGNED_IMAGE_ERROR
    [[ $SIGNED_IMAGE_CODE != 124 && $SIGNED_IMAGE_CODE != 137 ]] || error="no end after $SIGNED_IMAGE_LIMIT_S s"
    [[ $error != *'127.0.0.1:0: '* ]] || error+="; it led to plain http, and $VERLJOB_RUNTIME uses only TLS for this registry"
    fail 66 "cosign on $HOST could not verify $VERLJOB_IMAGE (code $SIGNED_IMAGE_CODE): $error" \
        "check the name, the registry and the login on $HOST: docker login ${SIGNED_IMAGE_HOST:-docker.io}"
}

# On every node: ends with 77 unless IMAGE_ID has the digest that launch.sh pinned.
signed_image::require_digest() {
    signed_image::is_required || return 0
    local digest pinned=${VERLJOB_IMAGE##*@}
    ! image::is_path || pinned=sha256:$VERLJOB_IMAGE_SHA256
    runtime::digests "$IMAGE_ID" || fail 77 "$HOST cannot compare $IMAGE_ID with $VERLJOB_IMAGE, which was verified: $RUNTIME_ERROR" \
        "use a runtime that knows the digests of its images: docker, podman or apptainer"
    for digest in ${RUNTIME_DIGESTS[@]+"${RUNTIME_DIGESTS[@]}"}; do [[ $digest != "$pinned" ]] || return 0; done
    fail 77 "$HOST would run $IMAGE_ID for $VERLJOB_IMAGE, which was verified, and it has the digests ${RUNTIME_DIGESTS[*]-}" \
        "remove that image from the node and submit again"
}

# On every node: ends with 77 unless VERLJOB_IMAGE is a digest in a registry, or a file that was verified.
signed_image::require_pinned() {
    signed_image::is_required || return 0
    if image::is_path && runtime::starts_files && [[ ${VERLJOB_IMAGE_SHA256:-} =~ ^[0-9a-f]{64}$ ]]; then
        signed_file::require_own
        return
    fi
    [[ $VERLJOB_IMAGE =~ ^[A-Za-z0-9][A-Za-z0-9._:/-]*/[A-Za-z0-9._:/-]+@sha256:[0-9a-f]{64}$ ]] \
        || fail 77 "VERLJOB_REQUIRE_SIGNATURE demands a signature, and launch.sh verified none for VERLJOB_IMAGE=$VERLJOB_IMAGE" \
            "start the job by sbatch slurm/launch.sh"
}
