"""The training of bench/gpu/real_gpus.py: prints what its actors see, keeps GPUs busy and logs steps as verl does."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class Probe:
    """An actor: what it sees, and work for its first GPU."""

    def look(self) -> dict[str, Any]:
        import torch

        seen = [f"GPU-{torch.cuda.get_device_properties(n).uuid}" for n in range(torch.cuda.device_count())]
        return {"masks": {name: os.environ[name] for name in MASKS if name in os.environ}, "sees": seen}

    def take(self, gib: int) -> None:
        import torch

        self.taken = torch.empty(gib << 30, dtype=torch.uint8, device="cuda")

    def work(self, seconds: float) -> None:
        import torch

        matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(20):
                torch.mm(matrix, matrix)
            torch.cuda.synchronize()


def train(arguments: Sequence[str]) -> None:
    """Look from an actor a GPU and from one with all of them; then work, and log each step while it is worked at."""
    import ray

    given = dict(argument.lstrip("+").split("=", 1) for argument in arguments)
    steps, seconds, gib = (int(given[f"probe.{name}"]) for name in ("steps", "seconds", "gib"))
    ray.init(log_to_driver=False)
    total = int(ray.cluster_resources()["GPU"])
    probe = ray.remote(Probe)
    everything = probe.options(num_gpus=total).remote()
    together = ray.get(everything.look.remote())
    ray.kill(everything)
    actors = [probe.options(num_gpus=1).remote() for _ in range(total)]
    ray.get([actor.take.remote(gib * (number + 1)) for number, actor in enumerate(actors)])
    print("saw " + json.dumps({"together": together, "each": ray.get([actor.look.remote() for actor in actors])}))
    for step in range(1, steps + 1):
        working = [actor.work.remote(seconds) for actor in actors]
        time.sleep(seconds * 0.6)
        with Path(os.environ["VERL_FILE_LOGGER_PATH"]).open("a") as log:
            log.write(json.dumps({"step": step, "data": {}}) + "\n")
        ray.get(working)


if __name__ == "__main__":
    train(sys.argv[1:])
