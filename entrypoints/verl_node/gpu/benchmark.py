"""`python3 -m verl_node.gpu.benchmark compute|reduce`: benchmarks all GPUs of this node; prints JSON.

A separate process, since importing torch takes seconds, and it may be killed with its descendants.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

_SIDE = 8192  # of the matrices: 1.1e12 operations, half a second on any GPU for training
_ROUNDS = 10
_WARM_ROUNDS = 5  # NCCL opens its channels during the first sums: after one, two H200s reach half of their bandwidth
_BYTES = 256 << 20  # NCCL reaches its bandwidth from some 100 MB on (nccl-tests)


def main() -> int:
    """Run the benchmark named on the command line; torch's exceptions are not caught."""
    import torch

    print(json.dumps(compute(torch) if sys.argv[1] == "compute" else reduce(torch)), flush=True)  # noqa: T201
    return 0


def compute(torch: Any) -> dict[str, Any]:
    """Multiply matrices on all GPUs at once, as training does; return ``tflops`` and ``right`` for each.

    Every entry of ones times ones is the side length, a power of two, which bfloat16 represents exactly.
    """
    count = torch.cuda.device_count()
    ones = [torch.ones(_SIDE, _SIDE, dtype=torch.bfloat16, device=f"cuda:{gpu}") for gpu in range(count)]
    products = [one @ one for one in ones]
    for gpu in range(count):
        torch.cuda.synchronize(gpu)
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for gpu, (one, (begin, end)) in enumerate(zip(ones, events)):
        with torch.cuda.device(gpu):
            begin.record()
            for _ in range(_ROUNDS):
                torch.matmul(one, one, out=products[gpu])
            end.record()
    for gpu in range(count):
        torch.cuda.synchronize(gpu)
    operations = 2 * _SIDE**3 * _ROUNDS
    return {
        "tflops": [round(operations / (begin.elapsed_time(end) * 1e9), 1) for begin, end in events],
        "right": [bool((product == _SIDE).all()) for product in products],
    }


def reduce(torch: Any) -> dict[str, Any]:
    """Sum a tensor over all GPUs; return ``gbps``, nccl-tests' bus bandwidth, and ``right``."""
    count = torch.cuda.device_count()
    with tempfile.NamedTemporaryFile() as meeting:
        context = torch.multiprocessing.get_context("spawn")
        answers = context.SimpleQueue()
        arguments = (count, f"file://{meeting.name}", answers)
        torch.multiprocessing.spawn(_rank, args=arguments, nprocs=count, join=True)
    results = [answers.get() for _ in range(count)]
    return {"gbps": round(min(gbps for gbps, _ in results), 1), "right": all(right for _, right in results)}


def _rank(rank: int, count: int, meeting: str, answers: Any) -> None:
    import torch
    import torch.distributed as group

    torch.cuda.set_device(rank)
    group.init_process_group("nccl", init_method=meeting, rank=rank, world_size=count)
    tensor = torch.full((_BYTES // 4,), float(rank + 1), device="cuda")
    group.all_reduce(tensor)
    right = bool((tensor == count * (count + 1) / 2).all())
    for _ in range(_WARM_ROUNDS):
        group.all_reduce(tensor)
    torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(_ROUNDS):
        group.all_reduce(tensor)
    torch.cuda.synchronize()
    seconds = (time.monotonic() - began) / _ROUNDS
    answers.put((_BYTES / seconds * 2 * (count - 1) / count / 1e9, right))
    group.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
