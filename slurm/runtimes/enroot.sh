# shellcheck shell=bash disable=SC2016,SC2034,SC2153 # inner shells expand; its variables are read by node.sh, HOST is node.sh's
# enroot, run by the account: the container is a child of node.sh and stays in the step, where Slurm's limits apply. Its image
# is a squashfs, which a node unpacks once. Started from the squashfs itself, enroot would put FUSE's processes among those of
# the container, which the supervisor watches and ends.
# Sets: CUDA_VISIBLE_DEVICES, ENROOT_CACHE_PATH, ENROOT_CONFIG_PATH, ENROOT_DATA_PATH, ENROOT_FOLDER, ENROOT_LOGIN,
#   ENROOT_RUNTIME_PATH, ENROOT_TEMP_PATH, ENROOT_UNSHARE_PID, IMAGE_ID, NVIDIA_DRIVER_CAPABILITIES,
#   NVIDIA_VISIBLE_DEVICES, RUNTIME_ARGV, RUNTIME_DIGESTS, RUNTIME_ERROR.
for name in file_lock pull_tmpdir image_digest image_store rootfs_store enroot_login container_environment container_processes; do
    # shellcheck source=/dev/null # each is checked on its own
    source "$VERLJOB_HOME/slurm/lib/runtime/$name.sh"
done

readonly ENROOT_TIMEOUT_S=60 ENROOT_GRACE_S=3
# The folder of the account's logins. Of its own mounts and hooks a container gets none, only the site's (/etc/enroot).
ENROOT_LOGIN=${ENROOT_CONFIG_PATH:-${XDG_CONFIG_HOME:-${HOME:-}/.config}/enroot}
# The defaults are folders of a login session, which a step does not have, and in the home, which nodes share.
ENROOT_FOLDER=${VERLJOB_LOCAL:-/tmp}/verljob-enroot-$UID
export ENROOT_DATA_PATH=$ENROOT_FOLDER ENROOT_RUNTIME_PATH=$ENROOT_FOLDER/run ENROOT_CONFIG_PATH=$ENROOT_FOLDER/config \
    ENROOT_CACHE_PATH=$ENROOT_FOLDER/cache ENROOT_TEMP_PATH=$ENROOT_FOLDER
# A login shell would replace the image's PATH. The others may be set by the site's enroot.conf or by the account.
for name in LOGIN_SHELL MOUNT_HOME REMAP_ROOT ROOTFS_WRITABLE UNSHARE_NET UNSHARE_IPC UNSHARE_UTS RESTRICT_DEV ALLOW_SUPERUSER; do
    export "ENROOT_$name=no"
done
unset name
export ENROOT_UNSHARE_PID=yes

runtime::available() {
    command -v enroot > /dev/null || fail 69 "there is no enroot on $HOST" "install it, or use another runtime: VERLJOB_RUNTIME"
    [[ ! $ENROOT_FOLDER =~ [[:space:]\\] ]] || fail 64 "enroot cannot use a folder with a blank or a backslash: $ENROOT_FOLDER" \
        "export VERLJOB_LOCAL=a node-local folder without them"
    rootfs_store::open "$ENROOT_FOLDER"
    unshare --user true 2> /dev/null || fail 69 "accounts cannot make user namespaces on $HOST, which enroot needs" \
        "ask for sysctl user.max_user_namespaces=15000 and kernel.unprivileged_userns_clone=1, and for enroot's AppArmor profile"
    enroot::_run "$ENROOT_TIMEOUT_S" enroot version || [[ -n $ENDING ]] || fail 69 "enroot does not work on $HOST: $RUNTIME_ERROR" \
        "run enroot version on $HOST as $(id -un), or exclude the node: sbatch --exclude=$HOST"
    [[ -z $ENDING ]] || exit 143
}

# usage: enroot::_run SECONDS COMMAND…
# Sets RUNTIME_ERROR if COMMAND failed.
enroot::_run() {
    local code=0
    local -r log=$NODE_FOLDER/image.log
    process::run timeout --kill-after=2 "$@" > "$log" 2>&1 || code=$?
    [[ $code != 143 || -n $ENDING ]] || sleep 0.5 || : # Slurm's TERM may reach this shell after the client
    RUNTIME_ERROR=$(runtime::print_error "$log" '[ERROR] ') || RUNTIME_ERROR=$(tail -n 1 -- "$log")
    ((code != 124 && code != 137)) || RUNTIME_ERROR="no end after $1 s"
    rm -f -- "$log"
    return "$code"
}

runtime::image_help() {
    printf '%s' 'put a squashfs (./run image.export --format squashfs, or enroot import) into a folder that every node sees ' \
        '(VERLJOB_IMAGE=/PATH.sqsh), or name an image of a registry by its digest (VERLJOB_IMAGE=docker://REGISTRY/NAME@sha256:…), ' \
        'with the login in ~/.config/enroot/.credentials or by docker login'
}
runtime::starts_files() { :; }

# usage: runtime::load PATH
runtime::load() {
    local LC_ALL=C magic='' name
    [[ ! -f $1 ]] || { IFS= read -r -N 4 magic < "$1"; } 2> /dev/null || : # it is tested next
    [[ $magic == hsqs ]] || { RUNTIME_ERROR='it is not a squashfs'; return 1; }
    image_digest::make "$1" || return 1
    name=${IMAGE_ID#sha256:}
    ! signed_image::is_required || name+=.once-$RANDOM$RANDOM # a job before could have changed another
    rootfs_store::make "$name" enroot::_unpack "$1"
}

# usage: enroot::_unpack SQUASHFS NAME
enroot::_unpack() {
    log::note "unpacking $1 into $ENROOT_DATA_PATH, once on this node"
    enroot::_run "$RUNTIME_PULL_TIMEOUT_S" enroot create --name "$2" "$1"
}

# usage: enroot::_open REFERENCE
enroot::_open() {
    ! signed_image::is_required || fail 77 \
        "enroot does not compare the manifest of $1 with its digest, and VERLJOB_REQUIRE_SIGNATURE demands the verified one" \
        "sign a squashfs (docs/images.md) and name it: VERLJOB_IMAGE=/PATH.sqsh; or use docker, podman or apptainer"
    image_store::open "$1" sqsh
}

runtime::find() {
    enroot::_open "$1" && rootfs_store::use "${IMAGE_STORE_DIGEST#sha256:}" || return 1
    IMAGE_ID=$IMAGE_STORE_DIGEST
}

runtime::pull() {
    enroot::_open "$1" || return 1
    [[ -f $IMAGE_STORE_FILE ]] || pull_tmpdir::run "${TMPDIR:-/tmp}" image_store::fetch enroot::_import || return 1
    image_store::touch
    rootfs_store::make "${IMAGE_STORE_DIGEST#sha256:}" enroot::_unpack "$IMAGE_STORE_FILE"
}

# usage: enroot::_import FILE
# enroot's releases 3 and 4 both know this form of a reference with a digest.
enroot::_import() {
    local registry=${IMAGE_STORE_REFERENCE%%/*} path=${IMAGE_STORE_REFERENCE#*/}
    local -x ENROOT_CACHE_PATH=$PULL_TMPDIR/cache ENROOT_TEMP_PATH=$PULL_TMPDIR ENROOT_CONFIG_PATH=$ENROOT_LOGIN
    [[ $registry == *[.:]* || $registry == localhost ]] || { registry='docker.io' path=$IMAGE_STORE_REFERENCE; }
    enroot_login::find "$registry"
    [[ $registry != docker.io ]] || registry='registry-1.docker.io'
    enroot::_run "$RUNTIME_PULL_TIMEOUT_S" enroot import --output "$1" "docker://$registry#${path/@/:}"
}

runtime::digests() { RUNTIME_DIGESTS=("$IMAGE_ID"); } # made from a file's content: if a signature is required, of no other image

runtime::is_toolkit_image() {
    RUNTIME_ERROR='it has no /opt/verljob/entrypoint.sh; ./run build and ./run image.export make one'
    [[ -x $ENROOT_DATA_PATH/$ROOTFS_NAME/opt/verljob/entrypoint.sh ]]
}

runtime::start_argv() {
    local target name
    RUNTIME_ARGV=(bash -c 'exec 3>&- 4<&- 7<&- && exec "$@"' client enroot start --rc "$LOCAL/rc")
    enroot::_add_devices
    for target in "${CONTAINER_MOUNTS[@]}"; do
        enroot::_add_mount "${CONTAINER_SOURCES[$target]}" "$target" "rbind,${CONTAINER_MODES[$target]}"
    done
    for target in ${CONTAINER_TMPFS[@]+"${CONTAINER_TMPFS[@]}"}; do enroot::_add_mount tmpfs "$target" ro,mode=500 tmpfs; done
    enroot::_add_mount "$LOCAL/environment" /run/verljob/environment rbind,ro
    RUNTIME_ARGV+=("${ROOTFS_NAME:-$VERLJOB_IMAGE}" "$CONTAINER_WORKDIR" /bin/bash /run/verljob/environment
        /usr/bin/tini -s -g -- /opt/verljob/entrypoint.sh node)
    [[ -z ${VERLJOB_DRY_RUN:-} ]] || return 0
    mkdir -m 700 -- "$LOCAL/dev"
    for name in fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do ln -s "/proc/self/${name#*:}" "$LOCAL/dev/${name%:*}"; done
    ln -s pts/ptmx "$LOCAL/dev/ptmx"
    printf 'cd -- "$1" && shift && exec "$@"\n' > "$LOCAL/rc"
    (umask 077 && container_environment::print > "$LOCAL/environment")
}

# Adds a /dev with the job's devices; or that of the node with NVIDIA's, which enroot's hook brings with the driver's libraries
# before these mounts are made.
enroot::_add_devices() {
    local name path
    export NVIDIA_VISIBLE_DEVICES=void NVIDIA_DRIVER_CAPABILITIES=compute,utility
    if ((${#CONTAINER_GPUS[@]})); then
        for name in ${TABLE[unset]:-}; do unset "$name"; done
        CUDA_VISIBLE_DEVICES=$(IFS=,; printf '%s' "${CONTAINER_GPUS[*]}")
        NVIDIA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES
    else
        enroot::_add_mount "$LOCAL/dev" /dev rbind,rw,nosuid,noexec
        enroot::_add_mount devpts /dev/pts rw,nosuid,noexec,newinstance,ptmxmode=0666,mode=620 devpts
        for path in /dev/{null,zero,full,random,urandom,tty} ${CONTAINER_DEVICES[@]+"${CONTAINER_DEVICES[@]}"}; do
            enroot::_add_mount "$path" "$path" rbind,rw
        done
    fi
    enroot::_add_mount tmpfs /dev/shm "rw,nosuid,nodev,noexec,mode=1777${TABLE[shm]:+,size=${TABLE[shm]}}" tmpfs
}

# usage: enroot::_add_mount SOURCE TARGET OPTIONS [FILE-SYSTEM]
# Adds a line of fstab with colons for blanks. Releases up to 4.1.2 do not read the escapes, and end with the path in an error.
enroot::_add_mount() {
    local field mount='' kind='dir'
    [[ -n ${4:-} || -d $1 ]] || kind='file'
    for field in "$1" "$2"; do
        field=${field//\\/\\134} field=${field// /\\040} field=${field//:/\\072} field=${field//$'\t'/\\011}
        mount+=${field//$'\n'/\\012}:
    done
    RUNTIME_ARGV+=(--mount "$mount${4:-none}:x-create=$kind,$3")
}

runtime::exec_argv() {
    RUNTIME_ARGV=(bash -c 'source "$0" && container_processes::enter "$@"' "$VERLJOB_HOME/slurm/lib/runtime/container_processes.sh" \
        "${VERLJOB_LOCAL:-/tmp}/$1/lease" "${@:2}")
}

# usage: runtime::failed_to_start CODE LOG
# The client's own failures are 1, which a program may use too.
runtime::failed_to_start() { (($1 == 1)) && [[ -z $LEASE_SILENCE ]] && [[ -n $(runtime::start_error "$2") ]]; }

# Prints the last three errors of enroot, its tools and its hook for NVIDIA: a hook's reason comes before its exit code.
runtime::start_error() {
    local line
    local -a errors=()
    while IFS= read -r line; do
        [[ ! $line =~ ^(\[ERROR\]\ |enroot-[a-z0-9]+:\ |nvidia-container-cli:\ ) ]] || errors+=("${line#\[ERROR\] }")
    done < "$1"
    ((${#errors[@]} <= 3)) || errors=("${errors[@]: -3}")
    line=$(printf '%s; ' ${errors[@]+"${errors[@]}"})
    [[ $line != *\\[01][0-9][0-9]* ]] || line+='this release of enroot mounts no path with a blank, colon or backslash'
    printf '%s\n' "${line%; }"
}

# usage: runtime::remove NAME
# NAME is also the name of the job's node-local folder. If node.sh was killed, the lease ends the container in order.
runtime::remove() {
    local -r lease=${VERLJOB_LOCAL:-/tmp}/$1/lease until=$((SECONDS + ENROOT_GRACE_S))
    [[ -z ${CONTAINER_CLIENT:-} ]] || kill -KILL "$CONTAINER_CLIENT" 2> /dev/null || : # it has ended
    while [[ -z ${CONTAINER_CLIENT:-} ]] && container_processes::find "$lease" && ((SECONDS < until)); do sleep 0.1; done
    container_processes::kill "$lease" && rootfs_store::close
}

runtime::cleanup() { rootfs_store::close; }

runtime::unlimited() {
    ((${#CONTAINER_GPUS[@]} == 0)) || printf 'devices '
    printf 'cpus memory pids ulimits\n'
}
