#!/bin/bash
# The launch procedure of the guides that this toolkit replaces, for comparison only: containers by srun, `docker exec ray
# start`, a sleep of 10 s after the head and of 5 s after each worker, then a check that counts the nodes.
# Prints NODES and their number, then CHECKED and the time.
#SBATCH --job-name=guide
#SBATCH --ntasks-per-node=1
set -uo pipefail
# shellcheck source=bench/launch/containers.sh
. "$SLURM_SUBMIT_DIR/containers.sh"

readonly NAME=guide_$SLURM_JOB_ID

# usage: form HEAD ADDRESS WORKER...
form() {
    local -r head=$1 ip=$2
    shift 2
    start_ray "$head" "$NAME" --head --node-ip-address="$ip" --port=6379 --dashboard-port=8266 --block &
    sleep 10
    local worker
    for worker in "$@"; do
        start_ray "$worker" "$NAME" --address "$ip:6379" --block &
        sleep 5
    done
}

_main() {
    local -a nodes
    mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    start_containers "$NAME"
    form "${nodes[0]}" "$(on "${nodes[0]}" hostname --ip-address)" "${nodes[@]:1}"
    count_nodes "${nodes[0]}" "$NAME"
    printf 'CHECKED %s\n' "$(date +%s.%N)"
    everywhere docker kill "$NAME"
}

_main "$@"
