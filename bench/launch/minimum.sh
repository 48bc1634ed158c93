#!/bin/bash
# The least that makes a cluster: a container on every node, one `ray start --head`, then one join a worker, all of them
# at once, without a check. To be measured against.
#SBATCH --job-name=minimum
#SBATCH --ntasks-per-node=1
set -uo pipefail
# shellcheck source=bench/launch/by_hand.sh
. "$SLURM_SUBMIT_DIR/by_hand.sh"

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
