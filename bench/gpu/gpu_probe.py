"""The training of bench/gpu/real_gpus.py: prints the GPUs of its actors, keeps them busy and logs steps like verl."""

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
    """An actor that lists its GPUs and keeps the first one busy."""

    def list_gpus(self) -> dict[str, Any]:
        import torch

        uuids = [f"GPU-{torch.cuda.get_device_properties(n).uuid}" for n in range(torch.cuda.device_count())]
        return {"masks": {name: os.environ[name] for name in MASKS if name in os.environ}, "uuids": uuids}

    def allocate(self, gib: int) -> None:
        import torch

        self.memory = torch.empty(gib << 30, dtype=torch.uint8, device="cuda")

    def work(self, seconds: float) -> None:
        import torch

        matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(20):
                torch.mm(matrix, matrix)
            torch.cuda.synchronize()


def train(arguments: Sequence[str]) -> None:
    """Print the GPUs of an actor with all and of actors with one each; then keep GPUs busy, and log steps meanwhile."""
    import ray

    settings = dict(argument.lstrip("+").split("=", 1) for argument in arguments)
    steps, seconds, gib = (int(settings[f"probe.{name}"]) for name in ("steps", "seconds", "gib"))
    ray.init(log_to_driver=False)
    total = int(ray.cluster_resources()["GPU"])
    probe = ray.remote(Probe)
    with_all = probe.options(num_gpus=total).remote()
    together = ray.get(with_all.list_gpus.remote())
    ray.kill(with_all)
    actors = [probe.options(num_gpus=1).remote() for _ in range(total)]
    ray.get([actor.allocate.remote(gib * (number + 1)) for number, actor in enumerate(actors)])
    each = ray.get([actor.list_gpus.remote() for actor in actors])
    print("visible " + json.dumps({"together": together, "each": each}))
    for step in range(1, steps + 1):
        working = [actor.work.remote(seconds) for actor in actors]
        time.sleep(seconds * 0.6)
        with Path(os.environ["VERL_FILE_LOGGER_PATH"]).open("a") as log:
            log.write(json.dumps({"step": step, "data": {}}) + "\n")
        ray.get(working)


if __name__ == "__main__":
    train(sys.argv[1:])
