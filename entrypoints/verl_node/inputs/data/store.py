"""Atomic folders: complete or absent, also when several nodes make the same one."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from verl_node.errors import InputUnavailable, PermissionMissing
from verl_node.reporting import files

MANIFEST = "manifest.json"
LOCK_TIMEOUT_S = 3600.0
POLL_S = 0.2


def is_whole(folder: Path, fingerprint: str) -> bool:
    """Whether ``folder`` was made from ``fingerprint`` and every file has the size and SHA-256 of its manifest.

    A fingerprint is words, from the general to the exact: a folder made from `1 a` is one made from `1`.

    Raises:
        PermissionMissing: The account may not read it.
        InputUnavailable: The disk cannot be read.
    """
    with _explained(folder):
        try:
            manifest = json.loads(files.read(folder / MANIFEST))
            entries: dict[str, dict[str, object]] = manifest["files"]
            return f"{manifest['fingerprint']} ".startswith(f"{fingerprint} ") and all(
                _entry(folder / name) == entry for name, entry in entries.items()
            )
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
            return False


def make(folder: Path, write: Callable[[Path], None], *, fingerprint: str) -> Path:
    """``folder``, made by ``write`` unless it is there whole.

    ``write`` fills a folder beside it, which then takes its place by rename: a reader sees the old one or the new
    one. A lock keeps others from doing the work twice; where the file system has no locks the rename alone decides,
    and a node that comes second takes what the first one made.

    Raises:
        PermissionMissing: The account may not write there.
        InputUnavailable: The disk is full, or somebody else holds the lock for LOCK_TIMEOUT_S.
    """
    with _explained(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder):
            if not is_whole(folder, fingerprint):
                _replace(folder, write, fingerprint)
    return folder


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        cause = f"This account may not use {error.filename or folder}."
        raise PermissionMissing(cause, fix="Set VERLJOB_DATA to a folder of yours.") from error
    except OSError as error:
        raise InputUnavailable(
            f"{folder} cannot be used: {error}.", fix="Set VERLJOB_DATA to a disk with room."
        ) from error


def _replace(folder: Path, write: Callable[[Path], None], fingerprint: str) -> None:
    own = folder.with_name(f".{folder.name}.{socket.gethostname()}.{os.getpid()}")
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    try:
        write(own)
        entries = {path.name: _entry(path) for path in sorted(own.iterdir())}
        (own / MANIFEST).write_text(json.dumps({"fingerprint": fingerprint, "files": entries}, indent=2) + "\n")
        _take_place(own, folder, fingerprint)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _take_place(own: Path, folder: Path, fingerprint: str) -> None:
    """Rename ``own`` to ``folder``; what is in the way is put aside, unless it is as good as ours."""
    aside = own.with_name(f"{own.name}.old")
    for _ in range(10):
        with contextlib.suppress(FileNotFoundError):
            if is_whole(folder, fingerprint):
                return
            folder.rename(aside)
            shutil.rmtree(aside)
        try:
            own.rename(folder)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        else:
            return
    raise OSError(f"others keep replacing {folder}")


def _entry(path: Path) -> dict[str, object]:
    digest = hashlib.sha256()
    with files.opened(path, follow=True) as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the lock file beside ``folder``, as far as the file system knows locks (NFS before 4 may not)."""
    path = folder.with_name(f".{folder.name}.lock")
    with files.locked(path) as file:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another process holds {path} for {LOCK_TIMEOUT_S:.0f} s") from None
                time.sleep(POLL_S)
                continue
            except OSError:
                pass  # no locks here: the rename decides
            break
        yield
