"""Atomic folders: complete or absent, even if several nodes make the same one."""

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


def is_complete(folder: Path, fingerprint: str) -> bool:
    """Whether ``folder`` was made from ``fingerprint`` and every file has the size and SHA-256 of its manifest.

    A fingerprint has blank-separated parts, general ones first: a folder made from `1 a` also counts as made from `1`.
    Raises PermissionMissing if the account cannot read it, InputUnavailable if the disk cannot be read.
    """
    with _explained_errors(folder):
        try:
            manifest = json.loads(files.read(folder / MANIFEST))
            entries: dict[str, dict[str, object]] = manifest["files"]
            return f"{manifest['fingerprint']} ".startswith(f"{fingerprint} ") and all(
                _entry(folder / name) == entry for name, entry in entries.items()
            )
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
            return False


def make(folder: Path, write: Callable[[Path], None], *, fingerprint: str) -> Path:
    """Return ``folder``, made by ``write`` unless it is complete.

    ``write`` fills a temporary folder, which then replaces it by rename: a reader sees the old one or the new one. A
    lock prevents duplicate work; without locks in the file system the first rename wins, and later nodes use its
    folder. Raises PermissionMissing if the account cannot write, InputUnavailable if the disk is full or another
    process holds the lock for LOCK_TIMEOUT_S.
    """
    with _explained_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder):
            if not is_complete(folder, fingerprint):
                _make_and_replace(folder, write, fingerprint)
    return folder


@contextlib.contextmanager
def _explained_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        cause = f"This account cannot use {error.filename or folder}."
        raise PermissionMissing(cause, fix="Set VERLJOB_DATA to a folder that you own.") from error
    except OSError as error:
        raise InputUnavailable(
            f"{folder} cannot be used: {error}.", fix="Set VERLJOB_DATA to a disk with enough space."
        ) from error


def _make_and_replace(folder: Path, write: Callable[[Path], None], fingerprint: str) -> None:
    temporary = folder.with_name(f".{folder.name}.{socket.gethostname()}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        write(temporary)
        entries = {path.name: _entry(path) for path in sorted(temporary.iterdir())}
        (temporary / MANIFEST).write_text(json.dumps({"fingerprint": fingerprint, "files": entries}, indent=2) + "\n")
        _replace(folder, temporary, fingerprint)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace(folder: Path, temporary: Path, fingerprint: str) -> None:
    """Replace ``folder`` by ``temporary``, unless another node has completed it meanwhile."""
    old = temporary.with_name(f"{temporary.name}.old")
    for _ in range(10):
        with contextlib.suppress(FileNotFoundError):
            if is_complete(folder, fingerprint):
                return
            folder.rename(old)
            shutil.rmtree(old)
        try:
            temporary.rename(folder)
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
    """Hold the lock file beside ``folder``, if the file system supports locks."""
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
                pass  # no locks: the first rename wins
            break
        yield
