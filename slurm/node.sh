#!/bin/bash
# shellcheck disable=SC2034 # launch.sh reads the version, the libraries read the rest
# One node of a job: checks the host, pulls or loads the image, runs the container with this node's share of the allocation
# and leaves a verdict. launch.sh's srun starts it as a task on every node; the container is its child.
set -Eeuo pipefail

readonly LAUNCH_VERSION=0.1.0 # launch.sh has the same line
HOST=${SLURMD_NODENAME:-$HOSTNAME} STAGE=image ENDING=''

_main() {
    # shellcheck source=slurm/lib/node/main.sh
    source "$VERLJOB_HOME/slurm/lib/node/main.sh"
    trap '[[ -z ${VERDICT[code]:-} ]] || verdict::sentence >&2' EXIT
    require_numbers SLURM_NODEID SLURM_JOB_ID SLURM_MEM_PER_NODE SLURM_MEM_PER_CPU SLURM_CPUS_ON_NODE VERLJOB_ATTEMPT VERLJOB_PULLS VERLJOB_PULL_TIMEOUT_S
    case ${VERLJOB_DRY_RUN:+dry_run}${1:-} in
        dry_run*) container_spec::print ;;
        sweep) node::sweep ;;
        *) _run ;;
    esac
}

_run() {
    ulimit -c 0 # a core dump would contain the job's token, also one of a process without a container
    node::begin
    host_check::start
    site_setup::load_modules
    site_setup::run_before
    image::pull_or_load
    STAGE=container
    container::remove_stale
    scratch::create
    compile_cache::open
    ports::read_range
    ports::reserve "$PORTS_LOW" $((PORTS_HIGH - PORTS_FOR_HEADS)) "$VERLJOB_PORTS" "$SLURM_JOB_ID"
    export VERLJOB_PORT_BLOCK=$PORTS_FIRST-$PORTS_LAST
    container_spec::make
    container_spec::write_account "$LOCAL"
    secrets::write "$LOCAL/secrets"
    host_check::write_results "$LOCAL/out/host-checks"
    container::run
}

_main "$@"
