#!/bin/bash
# `ray symmetric-run` in the same containers, one step on every node: Ray's own launch for Slurm since 2.49, for comparison
# only. Prints NODES and their number, then CHECKED and the time.
#SBATCH --job-name=symmetric
#SBATCH --ntasks-per-node=1
set -uo pipefail

_main() {
    local -a nodes
    mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    srun --export=ALL --ntasks-per-node=1 docker run --rm --network host --shm-size 1G --name "symmetric_$SLURM_JOB_ID" \
        --entrypoint ray "$BENCH_IMAGE" symmetric-run --address "${nodes[0]}:6379" --min-nodes "$SLURM_NNODES" \
        --num-cpus 4 --num-gpus 1 -- python3 -c '
import ray, time
ray.init(address="auto", logging_level="ERROR")
print("NODES", sum(node["Alive"] for node in ray.nodes()))
print("CHECKED", time.time(), flush=True)'
}

_main "$@"
