# shellcheck shell=bash disable=SC2034,SC2329 # read and called by the libraries and the runtimes
# The interface of slurm/runtimes/<name>.sh. A runtime reads CONTAINER_… and TABLE, never SLURM_…. It defines these functions,
# and overrides those below if a default does not fit.
#
#   can it be used?          available         returns, or ends with 64, 69 or 77 and the fix
#   how to get an image?     find REFERENCE    sets IMAGE_ID if the node has it
#                            pull REFERENCE    from a registry
#                            load PATH         from a file or folder; sets IMAGE_ID
#   how to start?            start_argv        sets RUNTIME_ARGV, which stays in the foreground
#   how to look into it?     exec_argv NAME …  sets RUNTIME_ARGV to a command inside the running NAME
#   what can it not limit?   unlimited         prints keys of RUNTIME_UNLIMITED
#
# For signed images: digests IMAGE sets RUNTIME_DIGESTS to the digests by which registries know it.
# A function that returns 1 sets RUNTIME_ERROR to the reason.
# Sets: RUNTIME_ERROR.
RUNTIME_ERROR=''

readonly RUNTIME_PULL_TIMEOUT_S=${VERLJOB_PULL_TIMEOUT_S:-1800} # for a pull or a load

# Limits that a runtime may not set, as logged at the start.
declare -gA RUNTIME_UNLIMITED=()
RUNTIME_UNLIMITED=(
    [devices]='which devices are seen' [cpus]='CPUs' [memory]='memory' [pids]='the number of processes' [shm]='the size of /dev/shm'
    [ulimits]="limits above the step's own" [files]="which files are seen (/tmp is the node's own)"
)

runtime::find() { RUNTIME_ERROR="the runtime $VERLJOB_RUNTIME cannot look up references"; return 1; }
runtime::pull() { RUNTIME_ERROR="the runtime $VERLJOB_RUNTIME cannot pull"; return 1; }
runtime::load() { RUNTIME_ERROR="the runtime $VERLJOB_RUNTIME cannot load a path"; return 1; }
runtime::digests() { RUNTIME_ERROR="the runtime $VERLJOB_RUNTIME does not know the digests of images"; return 1; }

# usage: runtime::registry_is_insecure HOST
# Tests whether the engine uses this registry without TLS.
runtime::registry_is_insecure() { return 1; }

# usage: runtime::is_toolkit_image IMAGE
runtime::is_toolkit_image() { :; }

# Tests whether the runtime starts a file as it is, so that a signature of the file tells what runs.
runtime::starts_files() { return 1; }

# Prints how to get an image to the nodes, as the fix of an error.
runtime::image_help() { printf 'see docs/runtimes.md for images of %s\n' "$VERLJOB_RUNTIME"; }

# usage: runtime::signal NAME SIGNAL
# This default and the next treat the client as the container, whose processes are its children.
runtime::signal() { kill -s "$2" "${CONTAINER_CLIENT:?}" 2> /dev/null; }

# usage: runtime::remove NAME
# Kills and removes the container; succeeds if it does not exist.
runtime::remove() {
    [[ -n ${CONTAINER_CLIENT:-} ]] && kill -KILL "$CONTAINER_CLIENT" 2> /dev/null || return 0
}

# usage: runtime::list LABEL
# Prints "name<TAB>value" for every container with LABEL, of any account, running or not.
runtime::list() { :; }

# Removes files and processes of the runtime if no container was started; remove does it too.
runtime::cleanup() { :; }

# usage: runtime::failed_to_start CODE LOG
# Tests whether the client ended with CODE by itself, before the container ran; docker and podman use 125 for that.
runtime::failed_to_start() { (($1 == 125)); }

# usage: runtime::print_error LOG PREFIX
# Prints the last line of LOG that begins with PREFIX, without it; returns 1 without one.
runtime::print_error() {
    local line last=''
    while IFS= read -r line; do
        [[ $line != "$2"* ]] || last=${line#"$2"}
    done < "$1"
    printf '%s\n' "${last:-it printed no error}"
    [[ -n $last ]]
}

# usage: runtime::start_error LOG
# Prints why the container did not start.
runtime::start_error() { tail -n 1 -- "$1"; }

# usage: runtime::ran_out_of_memory NAME
runtime::ran_out_of_memory() { return 1; }

# usage: runtime::limits KEY
runtime::limits() { [[ " $(runtime::unlimited) " != *" $1 "* ]]; }

# Logs what this runtime leaves unlimited. Slurm's own limits of the step still hold.
runtime::log_unlimited() {
    local key list=''
    for key in $(runtime::unlimited); do list+="${list:+, }${RUNTIME_UNLIMITED[$key]}"; done
    [[ -z $list ]] || log::note "the runtime $VERLJOB_RUNTIME does not limit, beyond what Slurm does: $list"
}

# launch.sh has checked the name (env_table::require_name); this is for a node.sh that was started manually.
[[ $VERLJOB_RUNTIME =~ ^[a-z0-9_-]+$ ]] || { printf "VERLJOB_RUNTIME is '%q', which is not a name of a runtime\n" "$VERLJOB_RUNTIME" >&2 && exit 64; }
# shellcheck source=slurm/runtimes/docker.sh
source "$VERLJOB_HOME/slurm/runtimes/$VERLJOB_RUNTIME.sh"
