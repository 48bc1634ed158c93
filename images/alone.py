"""One process of this checkout at a time, where two would do the same work or change the same folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".build" / "locks"


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Wait until no other process holds ``name``, a variant or a base, and be the one that does."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
