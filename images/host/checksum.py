"""The sha256 of what may be larger than the memory, in hex."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Protocol

BLOCK = 1 << 20


class Readable(Protocol):
    """All that is asked of a file: gzip's and tarfile's have it, too."""

    def read(self, size: int, /) -> bytes: ...


def of(file: Readable, size: int = sys.maxsize) -> str:
    """Of the next ``size`` bytes, or of what is left."""
    digest = hashlib.sha256()
    while size > 0 and (block := file.read(min(size, BLOCK))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()


def of_file(path: Path) -> str:
    """Of a whole file."""
    with path.open("rb") as file:
        return of(file)
