# shellcheck shell=bash disable=SC2034 # what it sets is read by the frame
# The parts of `docker run` that other engines' command lines have too: each adds to RUNTIME_ARGV.

# usage: oci::each FLAG [VALUE...]
# Adds FLAG VALUE to RUNTIME_ARGV for every value.
oci::each() {
    local value
    for value in "${@:2}"; do RUNTIME_ARGV+=("$1" "$value"); done
}

# usage: oci::run USER:GROUP
# Begins RUNTIME_ARGV. The client stays in the foreground; the engine removes the container when it ends.
oci::run() {
    RUNTIME_ARGV=("$OCI_CLIENT" run --rm --name "$CONTAINER_NAME" --network host --workdir "$CONTAINER_WORKDIR" --user "$1")
    oci::each --label "${CONTAINER_LABELS[@]}"
    oci::each --device ${CONTAINER_DEVICES[@]+"${CONTAINER_DEVICES[@]}"}
}

# usage: oci::_field NAME VALUE
# One field of --mount, which is read as CSV.
oci::_field() { printf '"%s=%s"' "$1" "${2//\"/\"\"}"; }

oci::mounts() {
    local item source target mode
    for item in "${CONTAINER_MOUNTS[@]}"; do
        IFS=$'\t' read -r source target mode <<< "$item"
        item=type=bind,$(oci::_field source "$source"),$(oci::_field target "$target")
        [[ $mode == rw ]] || item+=,readonly
        RUNTIME_ARGV+=(--mount "$item")
    done
    for item in ${CONTAINER_TMPFS[@]+"${CONTAINER_TMPFS[@]}"}; do
        RUNTIME_ARGV+=(--mount "type=tmpfs,$(oci::_field target "$item")")
    done
}

# shellcheck disable=SC2086 # lists of words
oci::rights() {
    RUNTIME_ARGV+=(--cap-drop ALL)
    oci::each --cap-add ${TABLE[capabilities]:-}
    RUNTIME_ARGV+=(--security-opt no-new-privileges)
    oci::each --security-opt ${TABLE[security]:-}
}

# A core would hold the job's token, so there is none, unless the site's table has an own word for it.
# shellcheck disable=SC2086 # a list of words
oci::limits() { oci::each --ulimit core=0 ${TABLE[ulimits]:-}; }

oci::shares() {
    [[ -z ${TABLE[pids]:-} ]] || RUNTIME_ARGV+=(--pids-limit "${TABLE[pids]}")
    [[ -z $CONTAINER_CPUSET ]] || RUNTIME_ARGV+=(--cpuset-cpus "$CONTAINER_CPUSET")
    [[ -z $CONTAINER_MEMORY ]] || RUNTIME_ARGV+=(--memory "$CONTAINER_MEMORY")
}

# Ends RUNTIME_ARGV: variables by name, the image, and what runs in it.
oci::node() {
    [[ -z ${TABLE[shm]:-} ]] || RUNTIME_ARGV+=(--shm-size "${TABLE[shm]}")
    oci::each --env "${CONTAINER_ENV[@]}"
    RUNTIME_ARGV+=("$CONTAINER_IMAGE" node)
}
