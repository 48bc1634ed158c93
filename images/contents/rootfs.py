"""Reads files of an image without starting a container.

Where this account may read the engine's storage (root, overlay2) the layers' folders are walked as the kernel would
merge them, which costs a look at each folder. Elsewhere the engine streams the whole file system of a container that is
made, never started and removed, and what is not wanted is dropped.
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

from images.contents.layers import members, plain
from images.engine.daemon import Inspected, daemon
from images.errors import ImageError

if TYPE_CHECKING:
    from docker.models.images import Image

OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")
STREAM_BUFFER = 1 << 20
Wanted = Callable[[str], bool]


def read(image: Image, wanted: Wanted) -> dict[str, bytes]:
    """The regular files whose path in the image (without the leading slash) is ``wanted``, and what they hold."""
    if folders := layers(image):
        try:
            return of_layers(folders, wanted)
        except PermissionError:  # a rootless engine's files of other accounts
            pass
    return streamed(image, wanted)


def layers(image: Image | Inspected) -> list[Path]:
    """The folders of the image's layers, top first; none where the engine keeps them otherwise or out of our reach."""
    driver = image.attrs.get("GraphDriver") or {}
    data = driver.get("Data") or {}
    if driver.get("Name") != "overlay2" or "UpperDir" not in data:
        return []
    named = [data["UpperDir"], *filter(None, data.get("LowerDir", "").split(":"))]
    return [Path(each) for each in named] if all(os.access(each, os.R_OK | os.X_OK) for each in named) else []


def of_layers(folders: Iterable[Path], wanted: Wanted) -> dict[str, bytes]:
    """The wanted files of layers, top first."""
    files = {path: Path(real) for path, real in merged("", [str(each) for each in folders]) if wanted(path)}
    return {path: real.read_bytes() for path, real in files.items()}


def merged(path: str, folders: list[str]) -> Iterator[tuple[str, str]]:
    """Path and place of each regular file below ``path``, which is these folders laid over one another, top first."""
    return ((path, place) for path, place, is_file in everything(path, folders) if is_file)


def everything(path: str, folders: list[str]) -> Iterator[tuple[str, str, bool]]:
    """Path, place and whether it is a regular file, of all below ``path``; a folder's is its topmost layer's place."""
    below: dict[str, list[str]] = {}
    settled: set[str] = set()
    for depth, folder in enumerate(folders):
        last = depth == len(folders) - 1
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in settled:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    below.setdefault(entry.name, []).append(entry.path)
                    if not last and _opaque(entry.path):
                        settled.add(entry.name)
                    continue
                settled.add(entry.name)  # a file or a whiteout: it hides what the layers below have
                if entry.name in below:
                    continue
                is_file = entry.is_file(follow_symlinks=False)
                if is_file or entry.is_symlink() or _is_special(entry.stat(follow_symlinks=False)):
                    yield path + entry.name, entry.path, is_file
    for name, places in below.items():
        yield path + name, places[0], False
        yield from everything(f"{path}{name}/", places)


def _is_special(state: os.stat_result) -> bool:
    """Whether it is a device or a FIFO: device 0,0 is a whiteout, and no archive holds a socket."""
    return not stat.S_ISSOCK(state.st_mode) and not (stat.S_ISCHR(state.st_mode) and state.st_rdev == 0)


def _opaque(folder: str) -> bool:
    """Whether a layer's folder hides what the layers below have under its name."""
    for name in OPAQUE:
        try:
            if os.getxattr(folder, name) == b"y":
                return True
        except OSError:  # it has no such attribute, or its file system has none at all
            continue
    return False


def streamed(image: Image, wanted: Wanted) -> dict[str, bytes]:
    """The wanted files out of all that the engine exports."""
    with exported(image) as archive:
        return of_archive(archive, wanted)


@contextmanager
def exported(image: Image) -> Iterator[tarfile.TarFile]:
    """All that an image holds as the engine exports it, to be read once from its beginning."""
    container = daemon().containers.create(image, ["never-started"], network_mode="none")
    try:
        stream = io.BufferedReader(_Stream(container.export(STREAM_BUFFER)), STREAM_BUFFER)
        with tarfile.open(fileobj=stream, mode="r|", bufsize=STREAM_BUFFER) as archive:
            yield archive
    except tarfile.TarError as broken:
        raise ImageError(f"the engine's export of {image.short_id} broke off: {broken}") from broken
    finally:
        container.remove(force=True)


def of_archive(archive: tarfile.TarFile, wanted: Wanted) -> dict[str, bytes]:
    """The wanted files of an archive that can be read once; a hard link holds what the file before it held."""
    found: dict[str, bytes] = {}
    for path, _, member in members(archive):
        if not wanted(path):
            continue
        if member.islnk():
            found[path] = found.get(plain(member.linkname), b"")
        elif member.isreg():
            opened = archive.extractfile(member)
            found[path] = opened.read() if opened else b""
    return found


class _Stream(io.RawIOBase):
    """Chunks, read as a file."""

    def __init__(self, chunks: Any) -> None:
        self.chunks, self.rest = iter(chunks), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self.rest = self.rest or next(self.chunks, b"")
        taken, self.rest = self.rest[: len(buffer)], self.rest[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)
