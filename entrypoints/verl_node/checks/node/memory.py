"""Shared memory: Ray's object store and NCCL's segments."""

from __future__ import annotations

import os

from verl_node.checks.check import check
from verl_node.checks.result import OK, Result
from verl_node.gpu import platforms
from verl_node.gpu.platforms import GIB
from verl_node.settings.settings import Settings


@check("slurm-container")
def shared_memory_is_large(settings: Settings, gpus: int) -> Result:
    """The size of /dev/shm, free or not."""
    size = shared_bytes()
    least, wanted = platforms.find(settings.platform).shared
    if size >= wanted:
        return OK
    seen = f"/dev/shm has {size / GIB:.1f} GiB, {wanted / GIB:.0f} GiB are wanted."  # noqa: S108  not a file of ours
    return Result("fail" if size < least else "warn", seen, f"Start the container with --shm-size={wanted // GIB}g.")


def shared_bytes() -> int:
    """Return the size of /dev/shm, 0 where there is none."""
    try:
        found = os.statvfs("/dev/shm")  # noqa: S108
    except OSError:
        return 0
    return found.f_frsize * found.f_blocks
