# shellcheck shell=bash disable=SC2034 # what it sets is read by the frame
# Docker and those made after it: asking the engine, its images and its containers. OCI_CLIENT is the command.
# Sets: IMAGE_ID, OCI_ANSWER, RUNTIME_ARGV, RUNTIME_DIGESTS, RUNTIME_SAID.

# Seconds that the engine may take to answer anything but a pull or a load.
readonly OCI_TIMEOUT_S=60

# And for a pull or a load.
readonly OCI_BRING_LIMIT_S=${VERLJOB_PULL_TIMEOUT_S:-1800}

# usage: oci::ask ARGUMENT...
# Runs the client; sets OCI_ANSWER to what it said, and RUNTIME_SAID to the last line of that when it failed.
oci::ask() {
    local code=0 limit_s=$OCI_TIMEOUT_S
    [[ -z $ENDING ]] || limit_s=$((SECONDS - ENDING < 5 ? 2 : 1)) # after TERM the whole node has 5 s
    OCI_ANSWER=$(oci::_limited "$limit_s" "$@") || code=$?
    # Slurm signals the step's processes one after the other: what ended the client may be on its way to this shell.
    [[ $code != 143 || -n $ENDING ]] || sleep 0.5 || :
    oci::_answered "$code" "$OCI_CLIENT gave no answer in $limit_s s"
}

# usage: oci::_limited SECONDS ARGUMENT...
# Not even a client that waits for a disk and cannot be killed is waited for, nor what it left behind: cat alone holds
# this output, and ends with the limit.
oci::_limited() {
    # shellcheck disable=SC2016 # expands there
    timeout --signal=KILL "$(($1 + 1))" bash -c 'timeout --foreground "$@" 2>&1 | cat; exit "${PIPESTATUS[0]}"' \
        limited "$1" "$OCI_CLIENT" "${@:2}"
}

# usage: oci::bring ARGUMENT...
# Runs a long command as oci::ask does, so that a signal ends it at once.
oci::bring() {
    local -r log=$NODE_FOLDER/image.log
    local code=0
    process::run timeout --kill-after=2 "$OCI_BRING_LIMIT_S" "$OCI_CLIENT" "$@" > "$log" 2>&1 || code=$?
    OCI_ANSWER=$(< "$log")
    rm -f -- "$log"
    oci::_answered "$code" "no end after $OCI_BRING_LIMIT_S s"
}

# usage: oci::_answered CODE LATE
oci::_answered() {
    RUNTIME_SAID=''
    [[ $1 != 124 && ($1 != 137 || -n $OCI_ANSWER) ]] || OCI_ANSWER=$2 # 137: TERM did not end it
    (($1 == 0)) || RUNTIME_SAID=${OCI_ANSWER##*$'\n'}
    return "$1"
}

runtime::pull() { oci::bring pull --quiet "$1"; }

runtime::load() { oci::load "$1"; }

# usage: oci::load ARCHIVE
oci::load() {
    oci::bring load --input "$1" || return 1
    [[ $OCI_ANSWER =~ Loaded\ image(\ ID)?:\ ([^[:space:]]+) ]] && runtime::find "${BASH_REMATCH[2]}"
}

runtime::find() {
    oci::ask image inspect --format '{{.Id}}' "$1" || return 1
    IMAGE_ID=${OCI_ANSWER##*$'\n'} # below any warning
    IMAGE_ID=sha256:${IMAGE_ID#sha256:}
}

# usage: runtime::digests IMAGE
runtime::digests() {
    local name
    oci::ask image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$1" || return 1
    RUNTIME_DIGESTS=()
    while IFS= read -r name; do [[ ! $name =~ ^[^[:space:]]+@sha256:[0-9a-f]{64}$ ]] || RUNTIME_DIGESTS+=("${name##*@}"); done <<< "$OCI_ANSWER"
}

runtime::is_ours() {
    oci::ask image inspect --format '{{.Config.Entrypoint}}' "$1" || return 1
    RUNTIME_SAID="it does not start /opt/verljob/entrypoint.sh; ./run build --platform $VERLJOB_PLATFORM makes one that does"
    [[ $OCI_ANSWER == *'/opt/verljob/entrypoint.sh'* ]]
}

runtime::ways() {
    printf '%s' 'push it to a registry that the nodes reach (VERLJOB_IMAGE=REGISTRY/NAME:TAG), or ' \
        "$OCI_CLIENT save it to a shared folder (VERLJOB_IMAGE=/PATH.tar), or $OCI_CLIENT load it on every node"
}

runtime::exec_argv() { RUNTIME_ARGV=("$OCI_CLIENT" exec --interactive --tty "$@"); }

runtime::signal() { oci::ask kill --signal "$2" "$1"; }

# usage: oci::list LABEL TEMPLATE
# As runtime::list; TEMPLATE is how this client prints the value of a label.
oci::list() {
    oci::ask ps --all --filter "label=$1" --format "{{.Names}}\t$2" || return 1
    printf '%s\n' "$OCI_ANSWER"
}

# usage: oci::remove NAME ABSENT
# Sees that the container is gone, or kills it and sees it gone: ABSENT is what the client says of one that is not there.
oci::remove() {
    local -r deadline=$((SECONDS + 5))
    oci::_lives "$@" || return 0
    oci::ask rm --force "$1" || : # whether it worked is asked next
    while oci::_lives "$@"; do
        [[ -z $ENDING ]] && ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}

oci::_lives() { oci::ask container inspect "$1" || [[ $RUNTIME_SAID != *"$2"* ]]; }

# usage: oci::words LOG PREFIX
# Prints the last line of LOG that begins with PREFIX, without it.
oci::words() {
    local line last=''
    while IFS= read -r line; do
        [[ $line != "$2"* ]] || last=${line#"$2"}
    done < "$1"
    printf '%s\n' "${last:-it did not say why}"
}

# The parts of `docker run` that are the same for every engine; each adds words to RUNTIME_ARGV.

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
