"""Opens files without following links or blocking on FIFOs; checks whether others can write them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

MOST_BYTES = 1 << 20
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def read(path: Path) -> str:
    """Return the text of a small file, of MOST_BYTES at most. Raises OSError where it is a link or no regular file."""
    with opened(path) as file:
        return file.read(MOST_BYTES).decode("utf-8", "replace")


def opened(path: Path, *, follow: bool = False) -> BinaryIO:
    """Open a regular file for reading; a link only where it may ``follow`` one. Raises OSError."""
    return os.fdopen(_open(path, os.O_RDONLY | (0 if follow else os.O_NOFOLLOW)), "rb")


def appending(path: Path) -> TextIO:
    """Open a regular file, new or not, for writing at its end. Raises OSError where it is a link or another kind."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    return os.fdopen(_open(path, flags), "a", encoding="utf-8")


def locked(path: Path) -> BinaryIO:
    """Open a lock file, new or not, as `flock` wants it over NFS. Raises OSError where it is a link or another kind."""
    return os.fdopen(_open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW), "r+b")


def replace(path: Path, text: str) -> None:
    """Write a file that readers see whole or not at all, also over NFS. Raises OSError."""
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def foreign(path: Path) -> str:
    """Return what lets another account write ``path``, in words: a link, an owner, a mode; empty for nothing.

    Raises OSError where it cannot be looked at.
    """
    seen = os.lstat(path)
    mode = stat.filemode(seen.st_mode)
    if stat.S_ISLNK(seen.st_mode):
        return f"is a link, of uid {seen.st_uid}"
    if seen.st_uid != os.geteuid():
        return f"belongs to uid {seen.st_uid}, not to this account ({os.geteuid()})"
    if seen.st_mode & _OTHERS_WRITE:
        return f"can be written by other accounts ({mode}, owner uid {seen.st_uid})"
    return ""


def tree(folder: Path) -> Iterator[Path]:
    """``folder`` and all that lies in it, without following links. Raises OSError."""
    yield folder
    with os.scandir(folder) as inside:
        entries = list(inside)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from tree(Path(entry.path))
        else:
            yield Path(entry.path)


def _open(path: Path, flags: int) -> int:
    # Without O_NONBLOCK a FIFO is waited for until somebody opens its other end; a regular file does not know it.
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return descriptor
