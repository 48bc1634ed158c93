"""Reads files of an image without starting a container.

If this account may read the engine's storage (root, overlay2), the layers' folders are merged as the kernel would,
which lists each folder once. Otherwise the engine exports the whole file system of a container that is created, never
started and removed, and the other files are dropped.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from images.engine.daemon import Inspected, daemon
from images.errors import ImageError

if TYPE_CHECKING:
    from docker.models.images import Image

OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")
STREAM_BUFFER = 1 << 20
Filter = Callable[[str], bool]


def read(image: Image, matches: Filter) -> dict[str, bytes]:
    """Return the content of the regular files whose path in the image (without the leading slash) matches."""
    if folders := layer_folders(image):
        try:
            return read_folders(folders, matches)
        except PermissionError:  # a rootless engine's files of other accounts
            pass
    return read_export(image, matches)


def layer_folders(image: Image | Inspected) -> list[Path]:
    """Return the folders of the image's layers, top first; nothing if this account cannot read the engine's storage."""
    driver = image.attrs.get("GraphDriver") or {}
    data = driver.get("Data") or {}
    if driver.get("Name") != "overlay2" or "UpperDir" not in data:
        return []
    folders = [data["UpperDir"], *filter(None, data.get("LowerDir", "").split(":"))]
    return [Path(each) for each in folders] if all(os.access(each, os.R_OK | os.X_OK) for each in folders) else []


def read_folders(folders: Iterable[Path], matches: Filter) -> dict[str, bytes]:
    """Return the matching files of layers, top first."""
    found = walk("", [str(each) for each in folders])
    return {path: Path(host_path).read_bytes() for path, host_path, is_file in found if is_file and matches(path)}


def walk(path: str, folders: list[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield path, path on this host, and whether it is a regular file, of everything below ``path``.

    ``folders`` are the layers' folders of ``path``, top first; the host path of a folder is that of its topmost layer.
    """
    below: dict[str, list[str]] = {}
    hidden: set[str] = set()  # in the layers below
    for depth, folder in enumerate(folders):
        last = depth == len(folders) - 1
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in hidden:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    below.setdefault(entry.name, []).append(entry.path)
                    if not last and _is_opaque(entry.path):
                        hidden.add(entry.name)
                    continue
                hidden.add(entry.name)  # a file or a whiteout
                if entry.name in below:
                    continue
                is_file = entry.is_file(follow_symlinks=False)
                if is_file or entry.is_symlink() or _is_special(entry.stat(follow_symlinks=False)):
                    yield path + entry.name, entry.path, is_file
    for name, host_paths in below.items():
        yield path + name, host_paths[0], False
        yield from walk(f"{path}{name}/", host_paths)


def _is_special(state: os.stat_result) -> bool:
    """Whether it is a device or a FIFO: device 0,0 is a whiteout, and archives have no sockets."""
    return not stat.S_ISSOCK(state.st_mode) and not (stat.S_ISCHR(state.st_mode) and state.st_rdev == 0)


def _is_opaque(folder: str) -> bool:
    """Whether a layer's folder hides the folders of this name in the layers below."""
    for name in OPAQUE:
        try:
            if os.getxattr(folder, name) == b"y":
                return True
        except OSError:  # no such attribute, or no attributes on this file system
            continue
    return False


def read_export(image: Image, matches: Filter) -> dict[str, bytes]:
    """Return the matching files of the engine's export."""
    with exported(image) as archive:
        return read_archive(archive, matches)


@contextmanager
def exported(image: Image) -> Iterator[tarfile.TarFile]:
    """Open the engine's export of an image, a stream that can be read once."""
    container = daemon().containers.create(image, ["never-started"], network_mode="none")
    try:
        stream = io.BufferedReader(_Stream(container.export(STREAM_BUFFER)), STREAM_BUFFER)
        with tarfile.open(fileobj=stream, mode="r|", bufsize=STREAM_BUFFER) as archive:
            yield archive
    except tarfile.TarError as broken:
        raise ImageError(f"the engine's export of {image.short_id} is incomplete: {broken}") from broken
    finally:
        container.remove(force=True)


def members(archive: tarfile.TarFile) -> Iterator[tuple[str, bool, tarfile.TarInfo]]:
    """Yield path, whether it is a folder, and header of each member, except the root folder itself."""
    for member in archive:
        path = plain(member.name)
        if path not in ("", "."):
            yield path, member.isdir(), member


def plain(path: str) -> str:
    """Return a member's path relative to the root folder."""
    return path.removeprefix("./").strip("/")


def read_archive(archive: tarfile.TarFile, matches: Filter) -> dict[str, bytes]:
    """Return the matching files of an archive that can be read once; a hard link has the content of its target."""
    found: dict[str, bytes] = {}
    for path, _, member in members(archive):
        if not matches(path):
            continue
        if member.islnk():
            found[path] = found.get(plain(member.linkname), b"")
        elif member.isreg():
            opened = archive.extractfile(member)
            found[path] = opened.read() if opened else b""
    return found


class _Stream(io.RawIOBase):
    """An iterator of chunks as a file."""

    def __init__(self, chunks: Any) -> None:
        self.chunks, self.rest = iter(chunks), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self.rest = self.rest or next(self.chunks, b"")
        chunk, self.rest = self.rest[: len(buffer)], self.rest[len(buffer) :]
        buffer[: len(chunk)] = chunk
        return len(chunk)
