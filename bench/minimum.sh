#!/bin/bash
# The least that makes a cluster: a container on every node, one `ray start --head`, then one join a worker, all of them
# at once, without a check. To be measured against.
#SBATCH --job-name=minimum
#SBATCH --ntasks-per-node=1
set -uo pipefail

readonly NAME=minimum_$SLURM_JOB_ID

# usage: on NODE COMMAND...
on() {
    local -r node=$1
    shift
    srun --overlap --export=ALL --nodes=1 --ntasks=1 --nodelist="$node" "$@"
}

_main() {
    local -a nodes
    local ip worker
    mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    srun --overlap --export=ALL --ntasks-per-node=1 docker run --rm -d --network host --shm-size 1G --name "$NAME" \
        --entrypoint tail "$BENCH_IMAGE" -f /dev/null > /dev/null
    ip=$(on "${nodes[0]}" hostname --ip-address)
    on "${nodes[0]}" docker exec "$NAME" ray start --head --node-ip-address="$ip" --num-cpus 4 --num-gpus 1 > /dev/null
    for worker in "${nodes[@]:1}"; do
        on "$worker" docker exec "$NAME" ray start --address "$ip:6379" --num-cpus 4 --num-gpus 1 > /dev/null &
    done
    wait
    printf 'CHECKED %s\n' "$(date +%s.%N)"
    on "${nodes[0]}" docker exec "$NAME" python3 -c '
import ray
ray.init(address="auto", logging_level="ERROR")
print("NODES", sum(node["Alive"] for node in ray.nodes()))'
    srun --overlap --export=ALL --ntasks-per-node=1 docker kill "$NAME" > /dev/null
}

_main "$@"
