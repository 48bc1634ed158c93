# shellcheck shell=bash disable=SC2034 # its variables are read by node.sh
# Apptainer or SingularityCE, run by the account: the container is a child of node.sh and stays in the step, where Slurm's
# limits apply. Its image is a file or folder: a SIF, a squashfs, a sandbox, or a SIF that is made of a registry's image.
# Sets: APPTAINER_CLIENT, APPTAINER_IMAGE, APPTAINER_OUTPUT, CUDA_VISIBLE_DEVICES, IMAGE_ID, RUNTIME_ARGV, RUNTIME_DIGESTS,
#   RUNTIME_ERROR.
for name in file_lock pull_tmpdir process_mark image_digest image_store container_environment; do
    # shellcheck source=/dev/null # each is checked on its own
    source "$VERLJOB_HOME/slurm/lib/runtime/$name.sh"
done
unset name

readonly APPTAINER_TIMEOUT_S=60 APPTAINER_GRACE_S=3

APPTAINER_IMAGE='' APPTAINER_CLIENT=apptainer

runtime::available() {
    local libexec starter
    # Not earlier: a module of the profile may bring the client.
    command -v apptainer > /dev/null || ! command -v singularity > /dev/null || APPTAINER_CLIENT=singularity
    command -v "$APPTAINER_CLIENT" > /dev/null || fail 69 "there is neither apptainer nor singularity on $HOST" \
        "install it, load its module before sbatch, or use another runtime: VERLJOB_RUNTIME"
    apptainer::_run "$APPTAINER_TIMEOUT_S" "$APPTAINER_CLIENT" buildcfg || fail 69 "$APPTAINER_CLIENT does not work on $HOST: $RUNTIME_ERROR" \
        "run $APPTAINER_CLIENT buildcfg on $HOST as $(id -un), or exclude the node: sbatch --exclude=$HOST"
    ((UID != 0)) && ! unshare --user true 2> /dev/null || return 0
    libexec=${APPTAINER_OUTPUT##*'LIBEXECDIR='}
    for starter in "${libexec%%$'\n'*}"/{apptainer,singularity}/bin/starter-suid; do [[ ! -u $starter ]] || return 0; done
    fail 69 "accounts cannot make user namespaces on $HOST, and $APPTAINER_CLIENT has no setuid part there" \
        "ask for sysctl user.max_user_namespaces=15000 and kernel.unprivileged_userns_clone=1, or for the package apptainer-suid"
}

# usage: apptainer::_run SECONDS COMMAND…
# Sets APPTAINER_OUTPUT, and RUNTIME_ERROR if COMMAND failed. A client that is killed at the limit leaves its helpers.
apptainer::_run() {
    local code=0
    local -r log=$NODE_FOLDER/image.log
    : > "$log"
    # shellcheck disable=SC2094 # opened for the mark
    process::run timeout --kill-after=2 "$1" bash -c "$PROCESS_MARK_WRAPPER" "$log" "${@:2}" > "$log" 2>&1 || code=$?
    APPTAINER_OUTPUT=$(< "$log")
    ((code < 124)) || process_mark::kill "$log" || log::warn "$RUNTIME_ERROR"
    RUNTIME_ERROR=$(runtime::print_error "$log" 'FATAL:   ') || RUNTIME_ERROR=${APPTAINER_OUTPUT##*$'\n'}
    ((code != 124 && code != 137)) || RUNTIME_ERROR="no end after $1 s"
    rm -f -- "$log"
    return "$code"
}

runtime::image_help() {
    printf '%s' 'put a SIF, a squashfs (./run image.export --format squashfs) or a sandbox into a folder that every node sees ' \
        '(VERLJOB_IMAGE=/PATH), or name an image of a registry by its digest (VERLJOB_IMAGE=docker://REGISTRY/NAME@sha256:…)'
}

runtime::starts_files() { :; }

# usage: runtime::load PATH
runtime::load() {
    local LC_ALL=C magic=''
    if [[ -d $1 ]]; then
        [[ -d $1/usr ]] || { RUNTIME_ERROR='it is a folder without usr, not a sandbox'; return 1; }
    else
        [[ ! -f $1 ]] || { IFS= read -r -N 4 magic < "$1"; } 2> /dev/null || : # it is tested next
        [[ $magic == hsqs || $magic == '#!/u' ]] || { RUNTIME_ERROR='it is neither a SIF nor a squashfs nor a sandbox'; return 1; }
    fi
    APPTAINER_IMAGE=$1
    image_digest::make "$1"
}

runtime::find() {
    image_store::open "$1" sif || return 1
    [[ -f $IMAGE_STORE_FILE ]] || { RUNTIME_ERROR="there is no $IMAGE_STORE_FILE"; return 1; }
    APPTAINER_IMAGE=$IMAGE_STORE_FILE IMAGE_ID=$IMAGE_STORE_DIGEST
    image_store::touch
}

runtime::pull() {
    image_store::open "$1" sif \
        && pull_tmpdir::run "${APPTAINER_TMPDIR:-${SINGULARITY_TMPDIR:-${TMPDIR:-/tmp}}}" image_store::fetch apptainer::_pull
}

# usage: apptainer::_pull FILE
# The client compares what it gets with the digest. Its own cache would be a second copy of the store.
apptainer::_pull() {
    apptainer::_run "$RUNTIME_PULL_TIMEOUT_S" env -u APPTAINER_TMPDIR -u SINGULARITY_TMPDIR \
        "$APPTAINER_CLIENT" --quiet pull --disable-cache "$1" "docker://$IMAGE_STORE_REFERENCE"
}

# The client itself reads these variables.
runtime::registry_is_insecure() { [[ ${APPTAINER_NO_HTTPS:-${SINGULARITY_NO_HTTPS:-}} =~ ^(1|true)$ ]]; }

# IMAGE_ID of a file was made from its content; a file of the store is compared with that of its pull.
runtime::digests() {
    [[ -z $IMAGE_STORE_FILE ]] || image_store::verify || return 1
    RUNTIME_DIGESTS=("$IMAGE_ID")
}

# Starts the image, so that a client that starts none is reported with its own error.
runtime::is_toolkit_image() {
    local code=0
    apptainer::_make_exec --pwd / "$APPTAINER_IMAGE" /bin/sh -c 'test -x /opt/verljob/entrypoint.sh'
    apptainer::_run "$APPTAINER_TIMEOUT_S" "${RUNTIME_ARGV[@]}" || code=$?
    case $code:$RUNTIME_ERROR in
        0:*) return 0 ;;
        1:* | *'stat /bin/sh: no such file'*)
            RUNTIME_ERROR='it has no /opt/verljob/entrypoint.sh; ./run build and ./run image.export make one'
            return 1
            ;;
        *'image format not recognized'* | *'could not open image'* | *'trying to read the squashfs image'*)
            fail 66 "$APPTAINER_CLIENT cannot read $APPTAINER_IMAGE on $HOST: $RUNTIME_ERROR" "remove it, and make or pull it again"
            ;;
    esac
    fail 69 "$APPTAINER_CLIENT starts no container on $HOST: $RUNTIME_ERROR" \
        "see docs/runtimes.md#apptainer, or exclude the node: sbatch --exclude=$HOST"
}

# usage: apptainer::_make_exec ARGUMENT…
# Sets RUNTIME_ARGV to the client's exec, without variables that would give it further options or the container further
# variables. Only those of mounts stay, which a site's modules set. --no-eval: else a shell runs what is in a value.
apptainer::_make_exec() {
    local name
    RUNTIME_ARGV=(env)
    while IFS= read -r name; do
        [[ ! $name =~ ^(APPTAINER|SINGULARITY) || $name =~ _BIND(PATH)?$ ]] || RUNTIME_ARGV+=(-u "$name")
    done < <(compgen -e | sort)
    RUNTIME_ARGV+=("$APPTAINER_CLIENT" --quiet exec --containall --cleanenv --no-eval --no-home --no-umask "$@")
}

runtime::start_argv() {
    local target path name
    local -a flags=(--pwd "$CONTAINER_WORKDIR")
    for target in "${CONTAINER_MOUNTS[@]}"; do
        flags+=(--mount "$(apptainer::_print_mount "${CONTAINER_SOURCES[$target]}" "$target" "${CONTAINER_MODES[$target]}")")
    done
    for target in ${CONTAINER_TMPFS[@]+"${CONTAINER_TMPFS[@]}"}; do
        flags+=(--mount "$(apptainer::_print_mount "$LOCAL/empty" "$target" ro)")
    done
    flags+=(--mount "$(apptainer::_print_mount "$LOCAL/environment" /run/verljob/environment ro)")
    for path in ${CONTAINER_DEVICES[@]+"${CONTAINER_DEVICES[@]}"}; do flags+=(--mount "$(apptainer::_print_mount "$path" "$path" rw)"); done
    if ((${#CONTAINER_GPUS[@]})); then # --nv brings the driver's libraries, and all cards of the node
        flags+=(--nv)
        for name in ${TABLE[unset]:-}; do unset "$name"; done
        CUDA_VISIBLE_DEVICES=$(IFS=,; printf '%s' "${CONTAINER_GPUS[*]}")
    fi
    apptainer::_make_exec "${flags[@]}" "${APPTAINER_IMAGE:-$VERLJOB_IMAGE}" /bin/bash /run/verljob/environment /opt/verljob/entrypoint.sh node
    RUNTIME_ARGV=(bash -c "$PROCESS_MARK_WRAPPER" "$LOCAL/client" "${RUNTIME_ARGV[@]}")
    [[ -z ${VERLJOB_DRY_RUN:-} ]] || return 0
    mkdir -m 500 -- "$LOCAL/empty"
    (umask 077 && : > "$LOCAL/client" && container_environment::print > "$LOCAL/environment")
}

# usage: apptainer::_print_mount SOURCE TARGET rw|ro
# Prints a value of --mount, which is CSV.
apptainer::_print_mount() { printf 'type=bind,"source=%s","destination=%s"%s' "${1//\"/\"\"}" "${2//\"/\"\"}" "$([[ $3 == rw ]] || printf ,ro)"; }

# The client's first process in the container is its init.
runtime::exec_argv() {
    local pid name init=none
    process_mark::find "${VERLJOB_LOCAL:-/tmp}/$1/client" || : # nsenter reports it
    for pid in ${FOUND_PROCESSES[@]+"${FOUND_PROCESSES[@]}"}; do
        { read -r name < "/proc/$pid/comm"; } 2> /dev/null || continue # it has ended
        [[ $name != appinit && $name != sinit ]] || init=$pid
    done
    RUNTIME_ARGV=(nsenter --preserve-credentials --user --mount --pid --ipc --target "$init" /bin/bash /run/verljob/environment "${@:2}")
}

# usage: runtime::failed_to_start CODE LOG
# The client's own failures are 255, which a program may use too.
runtime::failed_to_start() { (($1 == 255)) && [[ -z $LEASE_SILENCE ]] && runtime::print_error "$2" 'FATAL:' > /dev/null; }

runtime::start_error() { runtime::print_error "$1" 'FATAL:   '; }

# usage: runtime::remove NAME
# NAME is also the name of the job's node-local folder. If node.sh was killed, the lease ends the container in order.
runtime::remove() {
    local -r mark=${VERLJOB_LOCAL:-/tmp}/$1/client until=$((SECONDS + APPTAINER_GRACE_S))
    while [[ -z ${CONTAINER_CLIENT:-} ]] && process_mark::find "$mark" && ((SECONDS < until)); do sleep 0.1; done
    process_mark::kill "$mark"
}

runtime::unlimited() {
    ((${#CONTAINER_GPUS[@]} == 0)) || printf 'devices '
    printf 'cpus memory pids shm ulimits\n'
}
