#!/bin/bash
# The launch of the guides that this toolkit replaces, written after their prose (containers by srun, `docker exec ray
# start`, a sleep of 10 s after the head and of 5 s after each worker, then a check that lists the nodes), to be
# measured against. It is not how to launch anything.
#SBATCH --job-name=guide
#SBATCH --ntasks-per-node=1
set -uo pipefail

readonly NAME=guide_$SLURM_JOB_ID

# usage: on NODE COMMAND...
on() {
    local -r node=$1
    shift
    srun --overlap --export=ALL --nodes=1 --ntasks=1 --nodelist="$node" "$@"
}

start_containers() {
    srun --overlap --export=ALL --nodes="$SLURM_NNODES" --ntasks-per-node=1 bash -c "docker run --rm -d --network host \
        --shm-size 1G --name $NAME --entrypoint tail $BENCH_IMAGE -f /dev/null > /dev/null"
}

start_ray() {
    local -r head=$1 ip=$2
    shift 2
    on "$head" docker exec "$NAME" ray start --head --node-ip-address="$ip" --port=6379 --dashboard-port=8266 \
        --num-cpus 4 --num-gpus 1 --block > /dev/null &
    sleep 10
    local worker
    for worker in "$@"; do
        on "$worker" docker exec "$NAME" ray start --address "$ip:6379" --num-cpus 4 --num-gpus 1 --block > /dev/null &
        sleep 5
    done
}

check() {
    on "$1" docker exec "$NAME" python3 -c '
import ray
ray.init(address="auto", logging_level="ERROR")
print("NODES", sum(node["Alive"] for node in ray.nodes()))'
}

_main() {
    local -a nodes
    mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    start_containers
    start_ray "${nodes[0]}" "$(on "${nodes[0]}" hostname --ip-address)" "${nodes[@]:1}"
    check "${nodes[0]}"
    printf 'CHECKED %s\n' "$(date +%s.%N)"
    srun --overlap --export=ALL --ntasks-per-node=1 docker kill "$NAME" > /dev/null
}

_main "$@"
