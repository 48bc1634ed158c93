# shellcheck shell=bash disable=SC2034,SC2329 # read and called by the libraries and the runtimes
# The seam between node.sh and slurm/runtimes/<name>.sh. A runtime reads CONTAINER_… and TABLE and never Slurm, and answers
# five questions; it may answer the others too, where what stands here is wrong for it.
#
#   is it here?              available         returns, or ends with 64, 69 or 77 and says what to do
#   how does an image come?  find REFERENCE    sets IMAGE_ID when the node has it
#                            pull REFERENCE    from a registry
#                            load PATH         from a file or folder; sets IMAGE_ID
#   how does it start?       start_argv        sets RUNTIME_ARGV, which stays in the foreground
#   how to look into it?     exec_argv NAME …  sets RUNTIME_ARGV to a command inside the running NAME
#   what can it not limit?   unlimited         prints the words of RUNTIME_OPENLY for that
#
# For images that must be signed it also answers: digests IMAGE sets RUNTIME_DIGESTS, what registries call the image by.
# What returns 1 says why in RUNTIME_SAID.
# Sets: RUNTIME_SAID.
RUNTIME_SAID=''

# What a runtime may leave open, as it is said at the start.
declare -gA RUNTIME_OPENLY=()
RUNTIME_OPENLY=(
    [devices]='which devices are seen' [cpus]='CPUs' [memory]='memory' [pids]='the number of processes' [shm]='the size of /dev/shm'
    [ulimits]="limits above the step's own" [files]="which files are seen (/tmp is the node's own)"
)

runtime::find() { RUNTIME_SAID="the runtime $VERLJOB_RUNTIME knows no references"; return 1; }
runtime::pull() { RUNTIME_SAID="the runtime $VERLJOB_RUNTIME pulls nothing"; return 1; }
runtime::load() { RUNTIME_SAID="the runtime $VERLJOB_RUNTIME takes no path"; return 1; }

runtime::digests() { RUNTIME_SAID="the runtime $VERLJOB_RUNTIME does not know the digests of images"; return 1; }

# usage: runtime::insecure HOST
# Whether the engine asks this registry without TLS.
runtime::insecure() { return 1; }

# usage: runtime::is_ours IMAGE
runtime::is_ours() { :; }

# Prints how an image comes to the nodes, for people.
runtime::ways() { printf 'see docs/runtimes.md for what %s takes\n' "$VERLJOB_RUNTIME"; }

# usage: runtime::signal NAME SIGNAL
# Here and below the client is the container: what runs in it is its child.
runtime::signal() { kill -s "$2" "${CONTAINER_CLIENT:?}" 2> /dev/null; }

# usage: runtime::remove NAME
# Kills it and sees it gone; one that is not there is what was wanted.
runtime::remove() {
    [[ -n ${CONTAINER_CLIENT:-} ]] && kill -KILL "$CONTAINER_CLIENT" 2> /dev/null || return 0
}

# usage: runtime::list LABEL
# Prints "name<TAB>value" for every container that has LABEL, whoever started it, running or not.
runtime::list() { :; }

# Ends what asking the runtime left on the node, where no container was started; remove does it too.
runtime::leave() { :; }

# usage: runtime::last_words LOG
# Prints why it did not start.
runtime::last_words() { tail -n 1 -- "$1"; }

# usage: runtime::ran_out_of_memory NAME
runtime::ran_out_of_memory() { return 1; }

# usage: runtime::limits WORD
runtime::limits() { [[ " $(runtime::unlimited) " != *" $1 "* ]]; }

# Says what stays open with this runtime; what Slurm itself confines the step to holds for it all the same.
runtime::say_unlimited() {
    local word said=''
    for word in $(runtime::unlimited); do said+="${said:+, }${RUNTIME_OPENLY[$word]}"; done
    [[ -z $said ]] || log::note "the runtime $VERLJOB_RUNTIME does not limit, beyond what Slurm does: $said"
}

# launch.sh has looked at it (env_table::require_name): this is for whoever starts node.sh by hand.
[[ $VERLJOB_RUNTIME =~ ^[a-z0-9_-]+$ ]] || { printf "VERLJOB_RUNTIME is '%q', which is no name of a runtime\n" "$VERLJOB_RUNTIME" >&2 && exit 64; }
# shellcheck source=slurm/runtimes/docker.sh
source "$VERLJOB_HOME/slurm/runtimes/$VERLJOB_RUNTIME.sh"
