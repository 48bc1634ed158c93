"""Inter-process locks: one build of a variant at a time per checkout."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from images.host.paths import LOCK_FILES


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Hold the lock of a variant or base image; wait while another process holds it."""
    LOCK_FILES.mkdir(parents=True, exist_ok=True)
    with (LOCK_FILES / f"{name}.lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield
