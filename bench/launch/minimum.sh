#!/bin/bash
# The shortest way to a cluster, for comparison only: a container on every node, one `ray start --head`, then one join for
# each worker, all at once, without a check. Prints CHECKED and the time, then NODES and their number.
#SBATCH --job-name=minimum
#SBATCH --ntasks-per-node=1
set -uo pipefail
# shellcheck source=bench/launch/containers.sh
. "$SLURM_SUBMIT_DIR/containers.sh"

readonly NAME=minimum_$SLURM_JOB_ID

_main() {
    local -a nodes
    local ip worker
    mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    start_containers "$NAME"
    ip=$(on "${nodes[0]}" hostname --ip-address)
    start_ray "${nodes[0]}" "$NAME" --head --node-ip-address="$ip"
    for worker in "${nodes[@]:1}"; do
        start_ray "$worker" "$NAME" --address "$ip:6379" &
    done
    wait
    printf 'CHECKED %s\n' "$(date +%s.%N)"
    count_nodes "${nodes[0]}" "$NAME"
    everywhere docker kill "$NAME"
}

_main "$@"
