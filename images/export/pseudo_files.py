"""The tree of a squashfs, out of the pseudo file in which `unsquashfs -pf` tells it; that asks nobody to be root.

squashfs-tools has it from 4.5 on. Extended attributes are not in it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from images.contents.tree import BLOCKS, CHARACTERS, FIFO, FILE, FOLDER, LINK, Entry, Tree
from images.host import checksum
from images.host.process import run

KINDS = {"D": FOLDER, "S": LINK, "C": CHARACTERS, "B": BLOCKS, "I": FIFO, "R": FILE}
HARD_LINK = "L"
LINE = re.compile(r"((?:\\.|[^\\ ])+) (.) (.*)")


def read(path: Path) -> Tree:
    """What a squashfs holds.

    A line a path, ``NAME TYPE TIME MODE UID GID [REST]``, of a hard link ``NAME L PATH``; then the files' contents, of
    which a line has length and offset.
    """
    tree: dict[str, Entry] = {}
    links = {}
    with _told(path) as file:
        lines = [line.decode("utf-8", "surrogateescape").rstrip("\n") for line in iter(file.readline, b"#\n")]
        for _ in range(2):  # START OF DATA, and another #
            file.readline()
        start = file.tell()
        for told in filter(None, map(LINE.fullmatch, lines)):
            name, kind, rest = _plain(told[1]), told[2], told[3]
            if kind == HARD_LINK:
                links[name] = _plain(rest)
            elif name != "/":
                tree[name] = _entry(file, start, KINDS[kind], rest)
    return {**tree, **{name: tree[target] for name, target in links.items()}}


@contextmanager
def _told(path: Path) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        told = Path(folder) / "pseudo"
        run(["unsquashfs", "-pf", str(told), str(path)])
        with told.open("rb") as file:
            yield file


def _entry(file: IO[bytes], start: int, kind: str, told: str) -> Entry:
    _, octal, uid, gid, *more = told.split(" ", 4)
    mode, owner, rest = int(octal, 8), (int(uid), int(gid)), "".join(more)
    if kind == FILE:
        size, offset = (int(word) for word in rest.split()[:2])
        file.seek(start + offset)
        return Entry(kind, mode, owner, checksum.of(file, size), size)
    return Entry(kind, mode, owner, ",".join(rest.split()) if kind in (CHARACTERS, BLOCKS) else rest)


def _plain(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)
