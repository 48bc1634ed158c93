# shellcheck shell=bash disable=SC2153 # HOST is launch.sh's or node.sh's
# VERLJOB_REQUIRE_SIGNATURE, a public key: launch.sh has cosign verify VERLJOB_IMAGE on the first node, and every node runs
# the digest that was verified, or ends with 77. cosign asks the image's registry and no transparency log.
# Sets: HTTP_PROXY, SIGNED_IMAGE_CODE, SIGNED_IMAGE_COSIGN, SIGNED_IMAGE_DIGEST, SIGNED_IMAGE_DIGESTS,
#   SIGNED_IMAGE_HOST, SIGNED_IMAGE_NAME, SIGNED_IMAGE_WORDS, VERLJOB_IMAGE.

# Seconds that cosign may take, with its own retries of a registry that does not answer.
readonly SIGNED_IMAGE_LIMIT_S=60

# Most KiB that cosign may print: 1000 signatures have less.
readonly SIGNED_IMAGE_OUTPUT_KIB=1024

readonly SIGNED_IMAGE_WAYS='have it signed (./run push --key), or name an image that is: VERLJOB_IMAGE=REGISTRY/NAME@DIGEST'

signed_image::demanded() { [[ -n ${VERLJOB_REQUIRE_SIGNATURE:-} ]]; }

# usage: signed_image::pin
# Where a signature is demanded, makes VERLJOB_IMAGE NAME@DIGEST, of the digest that cosign verified; or ends with 64, 66
# or 77.
signed_image::pin() {
    local folder
    signed_image::demanded || return 0
    signed_image::_require_reference
    signed_image::_find_cosign
    folder=$(mktemp -d "${VERLJOB_LOCAL:-/tmp}/verljob-cosign.XXXXXX") || fail 77 "cannot make a folder in ${VERLJOB_LOCAL:-/tmp}" \
        "export VERLJOB_LOCAL=a node-local folder that you may write"
    signed_image::_verify "$folder"
    rm -rf -- "$folder"
    [[ -z $ENDING ]] || fail 143 "asked to end while cosign verified the image" ""
    signed_image::_judge
    VERLJOB_IMAGE=${SIGNED_IMAGE_NAME}@$SIGNED_IMAGE_DIGEST
    log::note "$VERLJOB_IMAGE is signed by the owner of $VERLJOB_REQUIRE_SIGNATURE"
}

# Sets SIGNED_IMAGE_NAME (without tag and digest) and SIGNED_IMAGE_HOST (empty for Docker Hub).
signed_image::_require_reference() {
    local -r key=$VERLJOB_REQUIRE_SIGNATURE
    [[ $key == /* && -f $key && -r $key ]] || fail 64 "VERLJOB_REQUIRE_SIGNATURE is $key, which is no file that $HOST can read" \
        "name the public key (openssl pkey -pubout, cosign.pub) by its absolute path"
    [[ $VERLJOB_IMAGE == */* && $VERLJOB_IMAGE =~ ^[A-Za-z0-9][A-Za-z0-9._:/@-]*$ ]] || fail 77 \
        "VERLJOB_REQUIRE_SIGNATURE demands a signature, which lies in the image's registry, and VERLJOB_IMAGE=$VERLJOB_IMAGE is in none" \
        "push and sign it (./run push --key): VERLJOB_IMAGE=REGISTRY/NAME:TAG or REGISTRY/NAME@DIGEST"
    SIGNED_IMAGE_NAME=${VERLJOB_IMAGE%%@*}
    [[ ${SIGNED_IMAGE_NAME##*/} != *:* ]] || SIGNED_IMAGE_NAME=${SIGNED_IMAGE_NAME%:*}
    SIGNED_IMAGE_HOST=${SIGNED_IMAGE_NAME%%/*}
    [[ $SIGNED_IMAGE_HOST == *[.:]* || $SIGNED_IMAGE_HOST == localhost ]] || SIGNED_IMAGE_HOST=''
}

# Sets SIGNED_IMAGE_COSIGN.
signed_image::_find_cosign() {
    local -r named=${VERLJOB_COSIGN:-}
    SIGNED_IMAGE_COSIGN=${named:-$(type -P cosign || :)} # none is said below
    [[ $SIGNED_IMAGE_COSIGN == /* && -x $SIGNED_IMAGE_COSIGN ]] || fail 77 \
        "VERLJOB_REQUIRE_SIGNATURE demands a signature, and there is no cosign to verify it on $HOST${named:+: VERLJOB_COSIGN is $named}" \
        "install cosign 2.5 or newer on the nodes (the first of a job runs it), or set VERLJOB_COSIGN=its absolute path in the profile"
}

# usage: signed_image::_verify FOLDER
# Sets SIGNED_IMAGE_CODE (cosign's, 124 or 137 after the limit), SIGNED_IMAGE_WORDS (of its error) and SIGNED_IMAGE_DIGESTS.
signed_image::_verify() {
    local -r ca=/etc/docker/certs.d/$SIGNED_IMAGE_HOST/ca.crt
    local run=signed_image::_cosign_over_tls
    local -a flags=(--key "$VERLJOB_REQUIRE_SIGNATURE" --insecure-ignore-tlog=true --check-claims=true --output json)
    [[ -z $SIGNED_IMAGE_HOST || ! -r $ca ]] || flags+=(--registry-cacert "$ca")
    if signed_image::_without_tls; then
        run=signed_image::_cosign
        flags+=(--allow-http-registry=true --allow-insecure-registry=true) # 2.5 wants the second for plain http
    fi
    SIGNED_IMAGE_CODE=0
    process::run "$run" "${flags[@]}" -- "$VERLJOB_IMAGE" > "$1/answer" 2> "$1/said" || SIGNED_IMAGE_CODE=$?
    signed_image::_digests < "$1/answer"
    signed_image::_words < "$1/said"
}

# usage: signed_image::_cosign ARGUMENT…
# Runs in a subshell of its own.
signed_image::_cosign() {
    ulimit -c 0
    ulimit -f "$SIGNED_IMAGE_OUTPUT_KIB"
    exec timeout --kill-after=2 "$SIGNED_IMAGE_LIMIT_S" "$SIGNED_IMAGE_COSIGN" verify "$@" < /dev/null
}

# usage: signed_image::_cosign_over_tls ARGUMENT…
# cosign follows a registry to plain http: for a token, with the login; as its storage; by itself in a private network.
# Every such request goes to a proxy that cannot be: Go's programs look for none for https in this variable, nor for the
# loopback.
signed_image::_cosign_over_tls() {
    export HTTP_PROXY=http://127.0.0.1:0 http_proxy=http://127.0.0.1:0
    [[ -n ${HTTPS_PROXY:-${https_proxy:-}} ]] || unset NO_PROXY no_proxy
    signed_image::_cosign "$@"
}

# Whether the engine of this node, too, asks this registry without TLS. A subshell: a runtime is the node's part.
signed_image::_without_tls() {
    [[ -n $SIGNED_IMAGE_HOST ]] && (
        # shellcheck source=/dev/null # checked by itself
        source "$VERLJOB_HOME/slurm/lib/runtime/runtime.sh"
        runtime::insecure "$SIGNED_IMAGE_HOST"
    )
}

# Sets SIGNED_IMAGE_DIGESTS: the values of docker-manifest-digest in cosign's JSON, where a quote inside of a string has a
# backslash before it.
signed_image::_digests() {
    local word name='' colon=''
    SIGNED_IMAGE_DIGESTS=()
    while IFS= read -r -d '"' word; do
        [[ $name != docker-manifest-digest || ! $colon =~ ^[[:space:]]*:[[:space:]]*$ ]] || SIGNED_IMAGE_DIGESTS+=("$word")
        name=$colon colon=$word
    done
}

# Sets SIGNED_IMAGE_WORDS: the first line of cosign's error, which may have a registry's words in it.
signed_image::_words() {
    local line
    SIGNED_IMAGE_WORDS='cosign did not say why'
    while IFS= read -r line; do
        [[ $line == 'Error: '* ]] || continue
        line=${line:7:300}
        SIGNED_IMAGE_WORDS=${line//[![:print:]]/?}
        return
    done
}

# Sets SIGNED_IMAGE_DIGEST, or ends. The codes are those of cosign 2 and 3: 10 no signature, 12 none that holds.
signed_image::_judge() {
    local digest
    local -r key=$VERLJOB_REQUIRE_SIGNATURE
    case $SIGNED_IMAGE_CODE:$SIGNED_IMAGE_WORDS in
        0:*) ;;
        10:*) fail 77 "$VERLJOB_IMAGE is not signed, and VERLJOB_REQUIRE_SIGNATURE demands a signature by $key" "$SIGNED_IMAGE_WAYS" ;;
        12:'no matching signatures: GET '* | 12:'no matching signatures: Get '*) signed_image::_unanswered ;;
        12:*) fail 77 "$VERLJOB_IMAGE is signed, but not this image by the owner of $key: $SIGNED_IMAGE_WORDS" "$SIGNED_IMAGE_WAYS" ;;
        1:*'public key'*) fail 64 "VERLJOB_REQUIRE_SIGNATURE is $key, which cosign cannot take: $SIGNED_IMAGE_WORDS" "name the file of a public key" ;;
        *) signed_image::_unanswered ;;
    esac
    SIGNED_IMAGE_DIGEST=${SIGNED_IMAGE_DIGESTS[0]-}
    for digest in "$SIGNED_IMAGE_DIGEST" ${SIGNED_IMAGE_DIGESTS[@]+"${SIGNED_IMAGE_DIGESTS[@]}"}; do
        [[ $digest =~ ^sha256:[0-9a-f]{64}$ && $digest == "$SIGNED_IMAGE_DIGEST" ]] \
            || fail 77 "cosign verified $VERLJOB_IMAGE and did not name one digest: ${digest:0:100}" \
                "run $SIGNED_IMAGE_COSIGN verify --key $key $VERLJOB_IMAGE on $HOST"
    done
    [[ $VERLJOB_IMAGE != *@* || ${VERLJOB_IMAGE#*@} == "$SIGNED_IMAGE_DIGEST" ]] \
        || fail 77 "cosign verified $SIGNED_IMAGE_DIGEST, and VERLJOB_IMAGE is $VERLJOB_IMAGE" "tell the registry's operators"
}

signed_image::_unanswered() {
    local words=$SIGNED_IMAGE_WORDS
    [[ $SIGNED_IMAGE_CODE != 124 && $SIGNED_IMAGE_CODE != 137 ]] || words="no end after $SIGNED_IMAGE_LIMIT_S s"
    [[ $words != *'127.0.0.1:0: '* ]] || words+="; it led to plain http, and $VERLJOB_RUNTIME asks this registry over TLS alone"
    fail 66 "cosign on $HOST could not verify $VERLJOB_IMAGE (code $SIGNED_IMAGE_CODE): $words" \
        "see whether the name is right, the registry up and the login there: docker login ${SIGNED_IMAGE_HOST:-docker.io}"
}

# usage: signed_image::compare
# On every node: what will run (IMAGE_ID) has the digest that launch.sh pinned, or the node ends with 77.
signed_image::compare() {
    signed_image::demanded || return 0
    local -r digest=${VERLJOB_IMAGE##*@}
    local found
    runtime::digests "$IMAGE_ID" || fail 77 "$HOST cannot tell whether $IMAGE_ID is $VERLJOB_IMAGE, which was verified: $RUNTIME_SAID" \
        "use a runtime that names the digests of its images: docker or podman"
    for found in ${RUNTIME_DIGESTS[@]+"${RUNTIME_DIGESTS[@]}"}; do [[ $found != "$digest" ]] || return 0; done
    fail 77 "$HOST would run $IMAGE_ID for $VERLJOB_IMAGE, which was verified, and it has the digests ${RUNTIME_DIGESTS[*]-}" \
        "remove that image from the node and submit again"
}

# usage: signed_image::require_pinned
# A node takes nothing but a digest in a registry, whatever lies in its folders.
signed_image::require_pinned() {
    signed_image::demanded || return 0
    [[ $VERLJOB_IMAGE =~ ^[A-Za-z0-9][A-Za-z0-9._:/-]*/[A-Za-z0-9._:/-]+@sha256:[0-9a-f]{64}$ ]] \
        || fail 77 "VERLJOB_REQUIRE_SIGNATURE demands a signature, and launch.sh verified none for VERLJOB_IMAGE=$VERLJOB_IMAGE" \
            "start the job by sbatch slurm/launch.sh"
}
