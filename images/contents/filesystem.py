"""File trees of images, from the engine's storage or its export, and their differences.

An entry is a path's kind, permissions, owner and content. Times are left out: two builds of one image may differ in
them if an engine cannot set them.
"""

from __future__ import annotations

import filecmp
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from docker.models.images import Image

from images.contents import rootfs
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
KINDS = {kind: name for name, kind in TYPES.items()}
TAR_KINDS = {
    tarfile.DIRTYPE: FOLDER,
    tarfile.SYMTYPE: LINK,
    tarfile.CHRTYPE: CHARACTERS,
    tarfile.BLKTYPE: BLOCKS,
    tarfile.FIFOTYPE: FIFO,
}
# The engine makes these when it starts a container, and an export contains them.
ENGINE_PATHS = (".dockerenv", "dev", "proc", "sys", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab")
DIGITS_SHOWN = 12  # of a sha256


@dataclass(frozen=True)
class Entry:
    """One path. ``content`` is a file's sha256, a link's target or a device's numbers; '' if the file is at ``path``.

    The owner is uid and gid, or None if it could not be read.
    """

    kind: str
    mode: int
    owner: tuple[int, int] | None
    content: str = ""
    size: int = 0
    path: str = ""

    def equals(self, other: Entry) -> bool:
        """Whether both agree in everything that is known of both; files are read only if nothing else differs."""
        if (self.kind, self.mode, self.size) != (other.kind, other.mode, other.size):
            return False
        if self.owner and other.owner and self.owner != other.owner:
            return False
        if self.path and other.path:
            return self.path == other.path or filecmp.cmp(self.path, other.path, shallow=False)
        return self.read() == other.read()

    def read(self) -> str:
        """Return the content, read from ``path`` if the file is there."""
        return digests.sha256_file(Path(self.path)) if self.path else self.content

    def __str__(self) -> str:
        owner = f"{self.owner[0]}:{self.owner[1]}" if self.owner else ""
        content = (f"{self.size} bytes", self.content[:DIGITS_SHOWN]) if self.kind == FILE else (self.content,)
        return " ".join(filter(None, (stat.filemode(TYPES[self.kind] | self.mode), owner, *content)))


Tree = Mapping[str, Entry]


def differing(first: Tree, second: Tree) -> Iterator[tuple[str, Entry | None, Entry | None]]:
    """Yield each path that differs, with its entry in both trees; None if it is missing."""
    for path in sorted(first.keys() | second.keys()):
        a, b = first.get(path), second.get(path)
        if a is None or b is None or not a.equals(b):
            yield path, a, b


def read_image(image: Image) -> Tree:
    """Return the tree of an image without the paths of the engine.

    Reads the layers' folders if this account may, else the engine's export.
    """
    if folders := rootfs.layer_folders(image):
        try:
            return read_folders(folders)
        except PermissionError:  # a rootless engine's files of other accounts
            pass
    with rootfs.exported(image) as archive:
        return read_archive(archive)


def read_folders(folders: list[Path]) -> Tree:
    """Return the tree of layers on this host, top first; content of files is not read.

    Owners are known to root only: a rootless engine shifts every uid.
    """
    is_root = os.geteuid() == 0
    found = rootfs.walk("", [str(each) for each in folders])
    return {path: _stat_entry(place, is_root) for path, place, _ in found if not is_engine_path(path)}


def read_archive(archive: tarfile.TarFile) -> Tree:
    """Return the tree of an archive of a whole file system, which may be a stream."""
    return {path: entry for path, _, entry in entries(archive) if not is_engine_path(path)}


def entries(archive: tarfile.TarFile, below: Tree | None = None) -> Iterator[tuple[str, bool, Entry]]:
    """Yield path, whether it is a folder, and entry of each member.

    A hard link has the entry of its target, which may be in a layer ``below``.
    """
    seen = dict(below or {})
    for path, is_folder, member in rootfs.members(archive):
        entry = seen[rootfs.plain(member.linkname)] if member.islnk() else _tar_entry(archive, member)
        seen[path] = entry
        yield path, is_folder, entry


def is_engine_path(path: str) -> bool:
    """Whether the engine makes this path when it starts a container."""
    return path.startswith(tuple(f"{each}/" for each in ENGINE_PATHS)) or path in ENGINE_PATHS


def _stat_entry(path: str, is_root: bool) -> Entry:
    state = os.lstat(path)
    kind, mode = KINDS[stat.S_IFMT(state.st_mode)], stat.S_IMODE(state.st_mode)
    owner = (state.st_uid, state.st_gid) if is_root else None
    if kind == FILE:
        return Entry(kind, mode, owner, size=state.st_size, path=path)
    if kind in (CHARACTERS, BLOCKS):
        return Entry(kind, mode, owner, f"{os.major(state.st_rdev)},{os.minor(state.st_rdev)}")
    return Entry(kind, mode, owner, os.readlink(path) if kind == LINK else "")


def _tar_entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    kind = TAR_KINDS.get(member.type, FILE)
    mode, content = member.mode & 0o7777, ""
    if kind == LINK:
        mode, content = 0o777, member.linkname  # a link's mode has no meaning, and engines write several
    elif kind in (CHARACTERS, BLOCKS):
        content = f"{member.devmajor},{member.devminor}"
    elif file := archive.extractfile(member):
        content = digests.sha256_stream(file)
    return Entry(kind, mode, (member.uid, member.gid), content, member.size if kind == FILE else 0)
