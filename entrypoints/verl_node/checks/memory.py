"""Shared memory: Ray's object store and NCCL's segments."""

from __future__ import annotations

import os

from verl_node.checks.answer import OK, Result
from verl_node.settings import Settings

GIB = 1 << 30
# By platform: below the first number (bytes) a job fails, below the second it is slow. Docker's default is 64 MiB,
# which NCCL does not survive ("Error while creating shared memory segment", EasyR1#228); on CPU Ray turns to the disk.
SHARED = {"cpu": (0, GIB), "cuda": (8 * GIB, 32 * GIB), "rocm": (8 * GIB, 32 * GIB)}


def shared_memory_is_large(settings: Settings, gpus: int) -> Result:
    """The size of /dev/shm, free or not."""
    size = shared_bytes()
    least, wanted = SHARED.get(settings.platform, (0, GIB))
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
