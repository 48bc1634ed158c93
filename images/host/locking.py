"""Inter-process locks: one build of a variant at a time per checkout."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from images.host.paths import LOCK_FILES


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Wait until no other process holds ``name``, a variant or a base, and be the one that does."""
    LOCK_FILES.mkdir(parents=True, exist_ok=True)
    with (LOCK_FILES / f"{name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
