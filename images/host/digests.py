"""SHA-256 of files, with a cache keyed by stat data.

As in git's index a digest counts while device, inode, size and both times of a file are those that it had when it was
read. ctime is one of them, which no program can set: an edit that restores size and mtime, a chmod or a file renamed
into the place of another does not escape. What changed less than RACY_NS before it was read could change again without
another ctime (git calls that racily clean), and is not remembered. Nothing is where the clock was set back since, or on
a file system that others write to, such as NFS, whose attributes may be old: there every file is read each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Protocol

RACY_NS = 2_000_000_000  # ext4 with small inodes counts seconds, and none of LOCAL is coarser
LOCAL = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "tmpfs", "xfs", "zfs"}
MOUNTS = Path("/proc/self/mountinfo")
IS_LOCAL: dict[int, bool] = {}  # by device, as far as this process has met it
KEPT_AT_MOST = 50_000
CHUNK = 1 << 20

Known = tuple[int, int, int, int, int, str]  # device, inode, size, mtime, ctime, digest


class Digests:
    """The digests that one file remembers; several threads may ask."""

    def __init__(self, kept: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self._kept, self._clock, self._lock = kept, clock, threading.Lock()
        self._known, self._news = self._read(), False

    def sha256(self, path: str, state: os.stat_result | None = None) -> str:
        """The sha256 of a regular file; ``state`` is what stat told of it just now."""
        seen = state or os.stat(path)
        known = self._known.get(path)
        if known and known[:5] == _identity(seen) and self._is_local(path, seen.st_dev):
            return known[5]
        return self._of_content(path)

    def keep(self) -> None:
        """Remember what was learnt, also for other processes; the last one that keeps is the one that is believed."""
        with self._lock:
            if not self._news:
                return
            self._news = False
            known = dict(list(self._known.items())[-KEPT_AT_MOST:])
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            new = self._kept.with_name(f"{self._kept.name}.{os.getpid()}")
            new.write_text(json.dumps({"at_ns": self._clock(), "files": known}), encoding="utf-8")
            new.replace(self._kept)

    def _of_content(self, path: str) -> str:
        """Read a file, and remember its digest where it can be known again."""
        begun_ns, content = self._clock(), hashlib.sha256()
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            while chunk := file.read(CHUNK):
                content.update(chunk)
            after = os.fstat(file.fileno())
        found = content.hexdigest()
        settled = _identity(before) == _identity(after) and after.st_ctime_ns < begun_ns - RACY_NS
        self._known.pop(path, None)
        if settled and self._is_local(path, after.st_dev):
            self._known[path] = (*_identity(after), found)
            self._news = True
        return found

    def _is_local(self, path: str, device: int) -> bool:
        if device not in IS_LOCAL:
            IS_LOCAL[device] = file_system(path) in LOCAL
        return IS_LOCAL[device]

    def _read(self) -> dict[str, Known]:
        """What is remembered; nothing where the file is missing, cut off or comes from the future."""
        try:
            told = json.loads(self._kept.read_text(encoding="utf-8"))
            known = {path: tuple(each) for path, each in told["files"].items()}
            return known if told["at_ns"] <= self._clock() else {}
        except (OSError, ValueError, KeyError):
            return {}


@cache
def at(kept: Path) -> Digests:
    """The digests that this file remembers, the same for all of a process."""
    return Digests(kept)


def file_system(path: str, mounts: Path = MOUNTS) -> str:
    """The kind of file system that a path lies on, as Linux calls it; nothing where that cannot be told."""
    real, found = os.path.realpath(path), ("", "")
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # no Linux
        return ""
    for line in lines:  # proc(5): "36 35 98:0 / /mnt rw,noatime shared:1 - ext3 /dev/root rw"
        mount, _, kind = line.partition(" - ")
        point = mount.split()[4].replace("\\040", " ")
        if len(point) >= len(found[0]) and f"{real}/".startswith(f"{point.rstrip('/')}/"):
            found = (point, kind.split()[0])
    return found[1]


def _identity(state: os.stat_result) -> tuple[int, int, int, int, int]:
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


class Readable(Protocol):
    """A binary file; gzip's and tarfile's are such, too."""

    def read(self, size: int, /) -> bytes: ...


def sha256_stream(file: Readable, size: int = sys.maxsize) -> str:
    """Hash the next ``size`` bytes, or all that is left; hex."""
    digest = hashlib.sha256()
    while size > 0 and (block := file.read(min(size, CHUNK))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()


def sha256_file(path: Path) -> str:
    """Hash a whole file; hex."""
    with path.open("rb") as file:
        return sha256_stream(file)
