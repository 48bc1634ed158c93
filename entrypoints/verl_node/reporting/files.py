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
    """Return the first MOST_BYTES of a text file. Raises OSError if it is a link or not a regular file."""
    with opened(path) as file:
        return file.read(MOST_BYTES).decode("utf-8", "replace")


def opened(path: Path, *, follow: bool = False) -> BinaryIO:
    """Open a regular file for reading; a link only with ``follow``. Raises OSError."""
    return os.fdopen(_open(path, os.O_RDONLY | (0 if follow else os.O_NOFOLLOW)), "rb")


def appending(path: Path) -> TextIO:
    """Open a regular file, new or not, for appending. Raises OSError if it is a link or not a regular file."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    return os.fdopen(_open(path, flags), "a", encoding="utf-8")


def locked(path: Path) -> BinaryIO:
    """Open a lock file, new or not, for writing, as `flock` needs it on NFS. Raises OSError like `appending`."""
    return os.fdopen(_open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW), "r+b")


def replace(path: Path, text: str) -> None:
    """Replace a file atomically, also on NFS. Raises OSError."""
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
    """Return why another account could write ``path``: a link, an owner, a mode; empty if it could not.

    Raises OSError.
    """
    status = os.lstat(path)
    mode = stat.filemode(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return f"is a link, of uid {status.st_uid}"
    if status.st_uid != os.geteuid():
        return f"belongs to uid {status.st_uid}, not to this account ({os.geteuid()})"
    if status.st_mode & _OTHERS_WRITE:
        return f"can be written by other accounts ({mode}, owner uid {status.st_uid})"
    return ""


def tree(folder: Path) -> Iterator[Path]:
    """Yield ``folder`` and everything in it, without following links. Raises OSError."""
    yield folder
    with os.scandir(folder) as inside:
        entries = list(inside)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from tree(Path(entry.path))
        else:
            yield Path(entry.path)


def _open(path: Path, flags: int) -> int:
    # Without O_NONBLOCK the open of a FIFO blocks until its other end is opened; a regular file ignores the flag.
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return descriptor
