# shellcheck shell=bash
# Containers that a killed launch left on this node, found by their labels: the folder that would tell of them may be gone.

# Seconds that Slurm's controller may take to say whether it knows a job; asked only where such a container is.
readonly STALE_TIMEOUT_S=10

# Removes our own containers whose job Slurm no longer knows. A neighbour's are never touched, nor are those of which
# Slurm does not answer. A job of this account that is here by right, the one at hand included, is known to Slurm.
stale_containers::remove() {
    local containers name job
    declare -F runtime::list > /dev/null || return 0 # a runtime without containers leaves none
    containers=$(runtime::list verljob.job) || { log::warn "the engine does not list its containers"; return 0; }
    while IFS=$'\t' read -r name job; do
        [[ $name == "verljob-$UID-"* && $job =~ ^[0-9]+$ ]] || continue
        stale_containers::_ended "$job" || continue
        log::note "removing the container $name of job $job, which Slurm no longer knows"
        runtime::remove "$name" || log::warn "container $name could not be removed: $RUNTIME_SAID"
    done <<< "$containers"
}

# usage: stale_containers::_ended JOB
# squeue names jobs that wait, run or complete; of one that ended long ago it says that the number is invalid.
stale_containers::_ended() {
    local said
    if said=$(timeout --kill-after=2 "$STALE_TIMEOUT_S" squeue --noheader "--jobs=$1" --format=%T 2>&1); then
        [[ -z $said ]]
    else
        [[ $said == *'Invalid job id'* ]]
    fi
}
