"""SHA-256 of files, with a cache keyed by stat data.

As in git's index, a cached digest is valid while device, inode, size, mtime and ctime of the file are unchanged. No
program can set ctime, so the cache also notices an edit that restores size and mtime, a chmod, and a file renamed into
place. A file that changed less than RACY_NS before it was read could change again without another ctime (git calls such
an entry racily clean), so its digest is not cached. Nothing is cached if the clock was set back, or on a file system
that other hosts write to, such as NFS, whose attributes may be stale: such files are read every time.
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

RACY_NS = 2_000_000_000  # ext4 with small inodes counts seconds, and no file system of LOCAL is coarser
LOCAL = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "tmpfs", "xfs", "zfs"}
MOUNTS = Path("/proc/self/mountinfo")
IS_LOCAL: dict[int, bool] = {}  # by device, filled as this process meets devices
MAX_ENTRIES = 50_000
CHUNK = 1 << 20

Entry = tuple[int, int, int, int, int, str]  # device, inode, size, mtime, ctime, digest


class DigestCache:
    """Digests of files, cached in one file; safe for several threads."""

    def __init__(self, path: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self._path, self._clock, self._lock = path, clock, threading.Lock()
        self._entries, self._changed = self._load(), False

    def sha256(self, path: str, state: os.stat_result | None = None) -> str:
        """Return the sha256 of a regular file; ``state`` is a stat result that the caller already has."""
        current = state or os.stat(path)
        entry = self._entries.get(path)
        if entry and entry[:5] == _identity(current) and self._is_local(path, current.st_dev):
            return entry[5]
        return self._read(path)

    def save(self) -> None:
        """Write new digests to the file for other processes; the last writer wins."""
        with self._lock:
            if not self._changed:
                return
            self._changed = False
            entries = dict(list(self._entries.items())[-MAX_ENTRIES:])
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            new.write_text(json.dumps({"at_ns": self._clock(), "files": entries}), encoding="utf-8")
            new.replace(self._path)

    def _read(self, path: str) -> str:
        """Hash the content of a file, and cache the digest if later changes can be noticed."""
        begun_ns, content = self._clock(), hashlib.sha256()
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            while chunk := file.read(CHUNK):
                content.update(chunk)
            after = os.fstat(file.fileno())
        digest = content.hexdigest()
        settled = _identity(before) == _identity(after) and after.st_ctime_ns < begun_ns - RACY_NS
        self._entries.pop(path, None)
        if settled and self._is_local(path, after.st_dev):
            self._entries[path] = (*_identity(after), digest)
            self._changed = True
        return digest

    def _is_local(self, path: str, device: int) -> bool:
        if device not in IS_LOCAL:
            IS_LOCAL[device] = file_system(path) in LOCAL
        return IS_LOCAL[device]

    def _load(self) -> dict[str, Entry]:
        """Read the cache file; empty if it is missing, truncated, or written by a later clock."""
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            entries = {path: tuple(entry) for path, entry in content["files"].items()}
            return entries if content["at_ns"] <= self._clock() else {}
        except (OSError, ValueError, KeyError):
            return {}


@cache
def open_cache(path: Path) -> DigestCache:
    """Return the digest cache of this file; one object per process."""
    return DigestCache(path)


def file_system(path: str, mounts: Path = MOUNTS) -> str:
    """Return Linux's name for the type of the file system that holds a path; '' if unknown."""
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
    """A binary file, including those of gzip and tarfile."""

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
