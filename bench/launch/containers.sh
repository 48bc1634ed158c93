#!/bin/bash
# Shared functions of guide.sh and minimum.sh: containers on the nodes of a job, and commands in them. Sourced from the
# folder of submission.

# usage: on NODE COMMAND...
on() {
    local -r node=$1
    shift
    srun --overlap --export=ALL --nodes=1 --ntasks=1 --nodelist="$node" "$@"
}

everywhere() {
    srun --overlap --export=ALL --nodes="$SLURM_NNODES" --ntasks-per-node=1 "$@" > /dev/null
}

# usage: start_containers NAME
start_containers() {
    everywhere docker run --rm -d --network host --shm-size 1G --name "$1" --entrypoint tail "$BENCH_IMAGE" -f /dev/null
}

# usage: start_ray NODE NAME FLAG...
start_ray() {
    local -r node=$1 name=$2
    shift 2
    on "$node" docker exec "$name" ray start --num-cpus 4 --num-gpus 1 "$@" > /dev/null
}

# usage: count_nodes NODE NAME
# Prints NODES and the number of live nodes.
count_nodes() {
    on "$1" docker exec "$2" python3 -c '
import ray
ray.init(address="auto", logging_level="ERROR")
print("NODES", sum(node["Alive"] for node in ray.nodes()))'
}
