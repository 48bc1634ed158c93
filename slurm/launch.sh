#!/bin/bash
#SBATCH --job-name=verl
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --output=slurm-%x-%j.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --no-requeue
# Runs verl on every node of an allocation:   sbatch [flags] slurm/launch.sh [RECIPE] [hydra overrides]
# GPUs, CPUs, memory, time and partition are the site's and the job's: give them as flags (docs/platforms.md).
# shellcheck disable=SC2034 # some of what is set here is read by the libraries
set -Eeuo pipefail

readonly LAUNCH_VERSION=0.1.0 # node.sh has the same line
HOST=${SLURMD_NODENAME:-$HOSTNAME} STAGE=launch ENDING='' NOTICE=''

# Runs on every node before anything else: a node that does not see the checkout says so and leaves a verdict.
# shellcheck disable=SC2016 # expands there
readonly NODE_COMMAND='[[ -r $1/slurm/node.sh ]] && exec bash "$1/slurm/node.sh" "${@:2}"
node=${SLURMD_NODENAME:-$HOSTNAME}
printf "verljob-verdict\t%s\tcode=64\torigin=self\tstage=launch\thost=%s\tcause=%s\tfix=%s\n" "$SLURM_NODEID-$node" "$node" \
    "node $node sees no $1/slurm/node.sh" "put the checkout where every node sees it, and export VERLJOB_HOME=its path there" >&2
exit 64'

# usage: _is_ours FOLDER
# sbatch may have copied this script before the checkout was changed, or FOLDER may be another checkout.
_is_ours() {
    local line
    [[ -f $1/node.sh && -r $1/node.sh ]] || return 1
    while IFS= read -r line; do
        [[ $line != "readonly LAUNCH_VERSION=$LAUNCH_VERSION "* ]] || return 0
    done < "$1/node.sh"
    return 1
}

# usage: _folders ARGUMENT...
# Prints the folders where this script may lie. Slurm starts a copy in its spool folder and tells the original as
# `Command=`: with the arguments, unquoted, relative under --chdir, and (null) for `sbatch < launch.sh`, which names no
# folder: see _from_submit_folder.
_folders() {
    local command script
    for script in "${BASH_SOURCE[0]}" "$(readlink -f -- "${BASH_SOURCE[0]}")"; do
        (cd -- "$(dirname -- "$script")" && pwd)
    done
    [[ $JOB_RECORD == *$'\n   Command='* && $JOB_RECORD != *$'\n   Command=(null)'* ]] || return 0
    command=${JOB_RECORD#*$'\n'   Command=}
    command=${command%%$'\n'   WorkDir=*}
    (($# == 0)) || command=${command%" $*"}
    [[ $command == /* ]] || command=$SLURM_SUBMIT_DIR/$command
    dirname -- "$command" "$(readlink -f -- "$command" || printf '%s' "$command")"
}

# Prints where a checkout may lie that nobody named: in the submit folder, into which others may be able to write.
_from_submit_folder() {
    [[ $JOB_RECORD != *$'\n   Command=(null)'* ]] || printf '%s\n' "$SLURM_SUBMIT_DIR/slurm" "$SLURM_SUBMIT_DIR"
}

# usage: _require_own FOLDER
# Ends with 77 unless FOLDER, the checkout around it and their files are the account's or root's and only theirs to write.
_require_own() {
    local owner mode path
    [[ ${VERLJOB_SHARED_FOLDERS:-} != 1 ]] || return 0
    shopt -s globstar dotglob
    while read -r owner mode path; do
        [[ ($owner == "$UID" || $owner == 0) && ${mode:5:1}${mode:8:1} != *w* ]] || {
            printf 'verdict: 77 (launch on %s): %s, and others may have changed %s (%s, owner uid %s) — %s\n' "$HOST" \
                'the checkout in the submit folder was not named' "$path" "$mode" "$owner" \
                'export VERLJOB_HOME=the checkout, if you trust it, before sbatch'
            exit 77
        }
    done < <(stat --dereference --format='%u %A %n' -- "$1/.." "$1" "$1"/** "$1"/../entrypoints "$1"/../entrypoints/**)
    shopt -u globstar dotglob
}

# usage: _find_home ARGUMENT...
# Sets and exports VERLJOB_HOME, or ends with 64.
_find_home() {
    local folder
    JOB_RECORD=''
    [[ -z ${SLURM_JOB_ID:-} ]] || JOB_RECORD=$(scontrol show job "$SLURM_JOB_ID") || printf 'scontrol does not know this job\n' >&2
    if [[ -n ${VERLJOB_HOME:-} ]]; then
        [[ $VERLJOB_HOME != /* ]] || ! _is_ours "$VERLJOB_HOME/slurm" || return 0
    else
        while IFS= read -r folder; do
            ! _is_ours "$folder" || { VERLJOB_HOME=$(cd -- "$folder/.." && pwd) && export VERLJOB_HOME && return 0; }
        done < <(_folders "$@")
        while IFS= read -r folder; do
            _is_ours "$folder" || continue
            _require_own "$folder"
            VERLJOB_HOME=$(cd -- "$folder/.." && pwd) && export VERLJOB_HOME && return 0
        done < <(_from_submit_folder)
    fi
    printf 'verdict: 64 (launch on %s): no slurm/node.sh of version %s in %s — export VERLJOB_HOME=%s\n' "$HOST" "$LAUNCH_VERSION" \
        "${VERLJOB_HOME:-$({ _folders "$@"; _from_submit_folder; } | uniq | paste -s -d,)}" 'the checkout, by a path that every node sees, before sbatch'
    exit 64
}

_main() {
    trap 'ENDING=$SECONDS' TERM INT
    trap 'NOTICE=$SECONDS' USR1 # Slurm's word that it will end the job soon; see slurm/lib/launch/requeue.sh
    _find_home "$@"
    # shellcheck source=slurm/lib/launch/main.sh
    source "$VERLJOB_HOME/slurm/lib/launch/main.sh"
    launch::run "$@"
}

_main "$@"
