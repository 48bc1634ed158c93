"""`python3 -m verl_node.gpu.count ray|torch PLATFORM GPUS`: prints how many GPUs Ray or torch counts on this node.

A process for each: libraries that torch loads change the answers of amdsmi, through which both count AMD's GPUs.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from importlib import metadata

from verl_node import versions
from verl_node.gpu import visible_devices


def main() -> int:
    """Print JSON; exceptions of Ray and torch are not caught."""
    who, platform, gpus = sys.argv[1], sys.argv[2], int(sys.argv[3])
    keep_one_mask(platform, gpus)
    print(json.dumps(by_ray() if who == "ray" else by_torch()), flush=True)  # noqa: T201
    return 0


def keep_one_mask(platform: str, gpus: int) -> None:
    """Change this process's masks as those of `ray start` are changed."""
    clean = visible_devices.with_one_mask(
        os.environ,
        platform=platform,
        gpus=gpus,
        visible=visible_devices.visible_devices(platform),
        ray=versions.parse(metadata.version("ray")),
    )
    for name in set(os.environ) - set(clean):
        del os.environ[name]
    os.environ.update(clean)


def by_ray() -> int:
    """Return the GPUs that `ray start` would count without --num-gpus."""
    accelerators = importlib.import_module("ray._private.accelerators")
    manager = accelerators.get_accelerator_manager_for_resource("GPU")
    masked = manager.get_current_process_visible_accelerator_ids()
    count = int(manager.get_current_node_num_accelerators())
    return count if masked is None else min(count, len(masked))


def by_torch() -> int:
    """Return torch's number of GPUs."""
    return int(importlib.import_module("torch").cuda.device_count())


if __name__ == "__main__":
    sys.exit(main())
