#!/bin/bash
# shellcheck disable=SC2034 # the version is read by launch.sh, the rest by the libraries
# One node of a job: checks the host, brings the image, hands the container what Slurm gave this node and no more,
# stays with it and leaves a verdict. Started by launch.sh's srun as a task on every node; the container is its child.
set -Eeuo pipefail

readonly LAUNCH_VERSION=0.1.0 # launch.sh has the same line
HOST=${SLURMD_NODENAME:-$HOSTNAME} STAGE=image ENDING=''

_main() {
    # shellcheck source=slurm/lib/node/main.sh
    source "$VERLJOB_HOME/slurm/lib/node/main.sh"
    trap '[[ -z ${VERDICT[code]:-} ]] || verdict::sentence >&2' EXIT
    require_numbers SLURM_NODEID SLURM_JOB_ID SLURM_MEM_PER_NODE SLURM_MEM_PER_CPU SLURM_CPUS_ON_NODE VERLJOB_ATTEMPT VERLJOB_PULLS VERLJOB_PULL_TIMEOUT_S
    case ${VERLJOB_DRY_RUN:+rehearse}${1:-} in
        rehearse*) container_spec::show ;;
        sweep) node::sweep ;;
        *) _stay ;;
    esac
}

_stay() {
    ulimit -c 0 # a core would hold the job's token, here and in what runs without an engine
    node::begin
    host_check::begin
    image::bring
    STAGE=container
    stale_containers::remove
    scratch::make
    ports::range
    ports::reserve "$PORTS_LOW" $((PORTS_HIGH - PORTS_FOR_HEADS)) "$VERLJOB_PORTS" "$SLURM_JOB_ID"
    export VERLJOB_PORT_BLOCK=$PORTS_FIRST-$PORTS_LAST
    container_spec::make
    account::write "$LOCAL"
    secrets::write "$LOCAL/secrets"
    host_check::judge "$LOCAL/out/host-checks"
    container::run
}

_main "$@"
