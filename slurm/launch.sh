#!/bin/bash
#SBATCH --job-name=verl
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --output=slurm-%x-%j.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --no-requeue
# Runs verl on every node of an allocation:   sbatch [flags] slurm/launch.sh [RECIPE] [hydra overrides]
# GPUs, CPUs, memory, time and partition depend on the site and the job: give them as flags (docs/platforms.md).
# shellcheck disable=SC2034 # the libraries read some of these variables
set -Eeuo pipefail

readonly LAUNCH_VERSION=0.1.0 # node.sh has the same line
HOST=${SLURMD_NODENAME:-$HOSTNAME} STAGE=launch ENDING='' NOTICE=''

# Runs first on every node: a node that does not see the checkout reports that as its verdict.
# shellcheck disable=SC2016 # expands on the node
readonly NODE_COMMAND='[[ -r $1/slurm/node.sh ]] && exec bash "$1/slurm/node.sh" "${@:2}"
node=${SLURMD_NODENAME:-$HOSTNAME}
printf "verljob-verdict\t%s\tcode=64\torigin=self\tstage=launch\thost=%s\tcause=%s\tfix=%s\n" "$SLURM_NODEID-$node" "$node" \
    "node $node sees no $1/slurm/node.sh" "put the checkout where every node sees it, and export VERLJOB_HOME=its path on the nodes" >&2
exit 64'

# usage: _has_same_version FOLDER
# FOLDER may be another checkout, or the checkout may have changed after sbatch copied this script.
_has_same_version() {
    local line
    [[ -f $1/node.sh && -r $1/node.sh ]] || return 1
    while IFS= read -r line; do
        [[ $line != "readonly LAUNCH_VERSION=$LAUNCH_VERSION "* ]] || return 0
    done < "$1/node.sh"
    return 1
}

# usage: _recorded_command ARGUMENT...
# Prints the script's path of `Command=` in the job's record: followed by the arguments, unquoted, in Slurm 22.05 and without
# them in 24.11. The next line is WorkDir, in 26.05 SubmitLine. The name, which comes before, may look like all of them.
_recorded_command() {
    local command=${JOB_RECORD#*" JobName=${SLURM_JOB_NAME:-}"$'\n   UserId='}
    [[ $command == *$'\n   Command='* ]] || return 0
    command=${command#*$'\n   Command='}
    (($# == 0)) || command=${command%%" $*"$'\n   '*}
    command=${command%%$'\n   SubmitLine='*}
    printf '%s\n' "${command%%$'\n   WorkDir='*}"
}

# usage: _script_folders ARGUMENT...
# Prints the possible folders of this script. Slurm runs a copy; the path of the original is relative under --chdir, and
# (null) for `sbatch < launch.sh`.
_script_folders() {
    local command script
    for script in "${BASH_SOURCE[0]}" "$(readlink -f -- "${BASH_SOURCE[0]}")"; do
        (cd -- "$(dirname -- "$script")" && pwd)
    done
    command=$(_recorded_command "$@")
    [[ -n $command && $command != '(null)' ]] || return 0
    [[ $command == /* ]] || command=$SLURM_SUBMIT_DIR/$command
    dirname -- "$command" "$(readlink -f -- "$command" || printf '%s' "$command")"
}

# usage: _submit_folders ARGUMENT...
# Prints the possible folders for `sbatch < launch.sh`: of the submit folder, which other accounts may be able to write.
_submit_folders() {
    [[ $(_recorded_command "$@") != '(null)' ]] || printf '%s\n' "$SLURM_SUBMIT_DIR/slurm" "$SLURM_SUBMIT_DIR"
}

# usage: _require_own FOLDER
# Ends with 77 unless this account or root owns the checkout and its files and no other account can write them.
_require_own() {
    local owner mode path
    [[ ${VERLJOB_SHARED_FOLDERS:-} != 1 ]] || return 0
    shopt -s globstar dotglob
    while read -r owner mode path; do
        [[ ($owner == "$UID" || $owner == 0) && ${mode:5:1}${mode:8:1} != *w* ]] || {
            printf 'verdict: 77 (launch on %s): %s, and others may have changed %s (%s, owner uid %s) — %s\n' "$HOST" \
                'VERLJOB_HOME is not set, so the checkout would be the one in the submit folder' "$path" "$mode" "$owner" \
                'export VERLJOB_HOME=the checkout before sbatch, if you trust it'
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
    [[ -z ${SLURM_JOB_ID:-} ]] || JOB_RECORD=$(scontrol show job "$SLURM_JOB_ID") || printf 'scontrol does not show job %s\n' "$SLURM_JOB_ID" >&2
    if [[ -n ${VERLJOB_HOME:-} ]]; then
        [[ $VERLJOB_HOME != /* ]] || ! _has_same_version "$VERLJOB_HOME/slurm" || return 0
    else
        while IFS= read -r folder; do
            ! _has_same_version "$folder" || { VERLJOB_HOME=$(cd -- "$folder/.." && pwd) && export VERLJOB_HOME && return 0; }
        done < <(_script_folders "$@")
        while IFS= read -r folder; do
            _has_same_version "$folder" || continue
            _require_own "$folder"
            VERLJOB_HOME=$(cd -- "$folder/.." && pwd) && export VERLJOB_HOME && return 0
        done < <(_submit_folders "$@")
    fi
    printf 'verdict: 64 (launch on %s): no slurm/node.sh of version %s in %s — export VERLJOB_HOME=%s\n' "$HOST" "$LAUNCH_VERSION" \
        "${VERLJOB_HOME:-$({ _script_folders "$@"; _submit_folders "$@"; } | uniq | paste -s -d,)}" 'the checkout, by a path that every node sees, before sbatch'
    exit 64
}

_main() {
    trap 'ENDING=$SECONDS' TERM INT
    trap 'NOTICE=$SECONDS' USR1 # Slurm's notice that it will end the job soon; see slurm/lib/launch/requeue.sh
    _find_home "$@"
    # shellcheck source=slurm/lib/launch/main.sh
    source "$VERLJOB_HOME/slurm/lib/launch/main.sh"
    launch::run "$@"
}

_main "$@"
