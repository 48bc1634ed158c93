"""File trees that can be compared: kind, permissions, owner and content of every path.

Trees come from archives and the engine (filesystem.py) and from a squashfs (export/pseudo_files.py). Times are no part
of them: two builds of one image may differ in them alone where an engine cannot set them.
"""

from __future__ import annotations

import filecmp
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from images.host import digests

FILE, FOLDER, LINK, FIFO, CHARACTERS, BLOCKS = "file", "folder", "link", "fifo", "characters", "blocks"
TYPES = {
    FILE: stat.S_IFREG,
    FOLDER: stat.S_IFDIR,
    LINK: stat.S_IFLNK,
    FIFO: stat.S_IFIFO,
    CHARACTERS: stat.S_IFCHR,
    BLOCKS: stat.S_IFBLK,
}
DIGITS = 12  # of a sha256, where it is told


@dataclass(frozen=True)
class Entry:
    """One path. A file ``holds`` its sha256 unless it lies at ``place`` here; a link its target, a device its numbers.

    The owner is a uid and a gid, or None where who read it could not know.
    """

    kind: str
    mode: int
    owner: tuple[int, int] | None
    holds: str = ""
    size: int = 0
    place: str = ""

    def same(self, other: Entry) -> bool:
        """Whether both are alike in all that both know; files are read only where nothing else tells."""
        if (self.kind, self.mode, self.size) != (other.kind, other.mode, other.size):
            return False
        if self.owner and other.owner and self.owner != other.owner:
            return False
        if self.place and other.place:
            return self.place == other.place or filecmp.cmp(self.place, other.place, shallow=False)
        return self.content() == other.content()

    def content(self) -> str:
        """What it holds, read where it lies."""
        return digests.sha256_file(Path(self.place)) if self.place else self.holds

    def __str__(self) -> str:
        owner = f"{self.owner[0]}:{self.owner[1]}" if self.owner else ""
        told = (f"{self.size} bytes", self.holds[:DIGITS]) if self.kind == FILE else (self.holds,)
        return " ".join(filter(None, (stat.filemode(TYPES[self.kind] | self.mode), owner, *told)))


Tree = Mapping[str, Entry]


def differing(one: Tree, other: Tree) -> Iterator[tuple[str, Entry | None, Entry | None]]:
    """Each path that is not the same in both, with how it is in either; None where it is missing."""
    for path in sorted(one.keys() | other.keys()):
        a, b = one.get(path), other.get(path)
        if a is None or b is None or not a.same(b):
            yield path, a, b


def differences(one: Tree, other: Tree) -> list[str]:
    """A line for each path that is not the same in both."""
    return [f"{path}: {a or 'missing'} | {b or 'missing'}" for path, a, b in differing(one, other)]
