# shellcheck shell=bash disable=SC2034 # its variables are read by node.sh
# Docker's command line, for Docker and compatible engines; OCI_CLIENT is the command.
# Sets: IMAGE_ID, OCI_OUTPUT, RUNTIME_ARGV, RUNTIME_DIGESTS, RUNTIME_ERROR.

readonly OCI_TIMEOUT_S=60 # for any command but a pull or a load

# usage: oci::query ARGUMENT...
# Runs the client; sets OCI_OUTPUT, and RUNTIME_ERROR to its last line if the command failed.
oci::query() {
    local code=0 limit_s=$OCI_TIMEOUT_S
    [[ -z $ENDING ]] || limit_s=$((SECONDS - ENDING < 5 ? 2 : 1)) # after TERM the whole node has 5 s
    OCI_OUTPUT=$(oci::_run_limited "$limit_s" "$@") || code=$?
    # Slurm signals one process after the other: the TERM that ended the client may reach this shell later.
    [[ $code != 143 || -n $ENDING ]] || sleep 0.5 || :
    oci::_set_error "$code" "$OCI_CLIENT did not answer within $limit_s s"
}

# usage: oci::_run_limited SECONDS ARGUMENT...
# Returns in time even if the client cannot be killed, since it waits for a disk, or leaves a process behind: only cat holds
# the output open.
oci::_run_limited() {
    # shellcheck disable=SC2016 # expands in the inner shell
    timeout --signal=KILL "$(($1 + 1))" bash -c 'timeout --foreground "$@" 2>&1 | cat; exit "${PIPESTATUS[0]}"' \
        limited "$1" "$OCI_CLIENT" "${@:2}"
}

# usage: oci::run_long ARGUMENT...
# Like oci::query for a long command, which a signal to this script ends at once.
oci::run_long() {
    local -r log=$NODE_FOLDER/image.log
    local code=0
    process::run timeout --kill-after=2 "$RUNTIME_PULL_TIMEOUT_S" "$OCI_CLIENT" "$@" > "$log" 2>&1 || code=$?
    OCI_OUTPUT=$(< "$log")
    rm -f -- "$log"
    oci::_set_error "$code" "no end after $RUNTIME_PULL_TIMEOUT_S s"
}

# usage: oci::_set_error CODE TIMEOUT-MESSAGE
oci::_set_error() {
    RUNTIME_ERROR=''
    [[ $1 != 124 && ($1 != 137 || -n $OCI_OUTPUT) ]] || OCI_OUTPUT=$2 # 137: TERM did not end it
    (($1 == 0)) || RUNTIME_ERROR=${OCI_OUTPUT##*$'\n'}
    return "$1"
}

runtime::pull() { oci::run_long pull --quiet "$1"; }

runtime::load() { oci::load "$1"; }

# usage: oci::load ARCHIVE
oci::load() {
    oci::run_long load --input "$1" || return 1
    [[ $OCI_OUTPUT =~ Loaded\ image(\ ID)?:\ ([^[:space:]]+) ]] && runtime::find "${BASH_REMATCH[2]}"
}

runtime::find() {
    oci::query image inspect --format '{{.Id}}' "$1" || return 1
    IMAGE_ID=${OCI_OUTPUT##*$'\n'} # below any warning
    IMAGE_ID=sha256:${IMAGE_ID#sha256:}
}

# usage: runtime::digests IMAGE
runtime::digests() {
    local name
    oci::query image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$1" || return 1
    RUNTIME_DIGESTS=()
    while IFS= read -r name; do [[ ! $name =~ ^[^[:space:]]+@sha256:[0-9a-f]{64}$ ]] || RUNTIME_DIGESTS+=("${name##*@}"); done <<< "$OCI_OUTPUT"
}

runtime::is_toolkit_image() {
    oci::query image inspect --format '{{.Config.Entrypoint}}' "$1" || return 1
    RUNTIME_ERROR="its entrypoint is not /opt/verljob/entrypoint.sh; ./run build --platform $VERLJOB_PLATFORM builds one"
    [[ $OCI_OUTPUT == *'/opt/verljob/entrypoint.sh'* ]]
}

runtime::image_help() {
    printf '%s' 'push it to a registry that the nodes reach (VERLJOB_IMAGE=REGISTRY/NAME:TAG), or ' \
        "$OCI_CLIENT save it to a shared folder (VERLJOB_IMAGE=/PATH.tar), or $OCI_CLIENT load it on every node"
}

runtime::exec_argv() { RUNTIME_ARGV=("$OCI_CLIENT" exec --interactive --tty "$@"); }

runtime::signal() { oci::query kill --signal "$2" "$1"; }

# usage: oci::list LABEL TEMPLATE
# For runtime::list; TEMPLATE prints the value of a label with this client.
oci::list() {
    oci::query ps --all --filter "label=$1" --format "{{.Names}}\t$2" || return 1
    printf '%s\n' "$OCI_OUTPUT"
}

# usage: oci::remove NAME ABSENT
# Kills and removes the container; ABSENT is the client's error for one that does not exist.
oci::remove() {
    local -r deadline=$((SECONDS + 5))
    oci::_exists "$@" || return 0
    oci::query rm --force "$1" || : # the loop tests the result
    while oci::_exists "$@"; do
        [[ -z $ENDING ]] && ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}

oci::_exists() { oci::query container inspect "$1" || [[ $RUNTIME_ERROR != *"$2"* ]]; }

# The functions below build the flags of `docker run` that all engines share; each appends to RUNTIME_ARGV.

# usage: oci::add_flag FLAG [VALUE...]
# Appends FLAG VALUE for every value.
oci::add_flag() {
    local value
    for value in "${@:2}"; do RUNTIME_ARGV+=("$1" "$value"); done
}

# usage: oci::begin_run USER:GROUP
# Starts RUNTIME_ARGV. The client stays in the foreground; the engine removes the container when it ends.
oci::begin_run() {
    RUNTIME_ARGV=("$OCI_CLIENT" run --rm --name "$CONTAINER_NAME" --network host --workdir "$CONTAINER_WORKDIR" --user "$1")
    oci::add_flag --label "${CONTAINER_LABELS[@]}"
    oci::add_flag --device ${CONTAINER_DEVICES[@]+"${CONTAINER_DEVICES[@]}"}
}

# usage: oci::_mount_field NAME VALUE
# Quotes a field of --mount, which is CSV.
oci::_mount_field() { printf '"%s=%s"' "$1" "${2//\"/\"\"}"; }

oci::add_mounts() {
    local target mount
    for target in "${CONTAINER_MOUNTS[@]}"; do
        mount=type=bind,$(oci::_mount_field source "${CONTAINER_SOURCES[$target]}"),$(oci::_mount_field target "$target")
        [[ ${CONTAINER_MODES[$target]} == rw ]] || mount+=,readonly
        RUNTIME_ARGV+=(--mount "$mount")
    done
    for target in ${CONTAINER_TMPFS[@]+"${CONTAINER_TMPFS[@]}"}; do
        RUNTIME_ARGV+=(--mount "type=tmpfs,$(oci::_mount_field target "$target")")
    done
}

# shellcheck disable=SC2086 # lists of words
oci::add_rights() {
    RUNTIME_ARGV+=(--cap-drop ALL)
    oci::add_flag --cap-add ${TABLE[capabilities]:-}
    RUNTIME_ARGV+=(--security-opt no-new-privileges)
    oci::add_flag --security-opt ${TABLE[security]:-}
}

# A core dump would contain the job's token; a site's table may still set `core`.
# shellcheck disable=SC2086 # a list of words
oci::add_ulimits() { oci::add_flag --ulimit core=0 ${TABLE[ulimits]:-}; }

oci::add_resources() {
    [[ -z ${TABLE[pids]:-} ]] || RUNTIME_ARGV+=(--pids-limit "${TABLE[pids]}")
    [[ -z $CONTAINER_CPUSET ]] || RUNTIME_ARGV+=(--cpuset-cpus "$CONTAINER_CPUSET")
    [[ -z $CONTAINER_MEMORY ]] || RUNTIME_ARGV+=(--memory "$CONTAINER_MEMORY")
}

# Ends RUNTIME_ARGV: variables by name, the image and its command.
oci::end_run() {
    [[ -z ${TABLE[shm]:-} ]] || RUNTIME_ARGV+=(--shm-size "${TABLE[shm]}")
    oci::add_flag --env "${CONTAINER_ENV[@]}"
    RUNTIME_ARGV+=("$CONTAINER_IMAGE" node)
}
