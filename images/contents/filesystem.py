"""File trees of images: from an archive, from the engine's storage, or from its export."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from docker.models.images import Image

from images.contents import layers, rootfs
from images.contents.tree import BLOCKS, CHARACTERS, FIFO, FILE, FOLDER, LINK, TYPES, Entry, Tree
from images.host import digests

# The engine fills these when it starts a container, and an export has them.
OF_THE_ENGINE = (".dockerenv", "dev", "proc", "sys", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab")
OF_TAR = {
    tarfile.DIRTYPE: FOLDER,
    tarfile.SYMTYPE: LINK,
    tarfile.CHRTYPE: CHARACTERS,
    tarfile.BLKTYPE: BLOCKS,
    tarfile.FIFOTYPE: FIFO,
}
KINDS = {kind: name for name, kind in TYPES.items()}


def of_archive(path: Path) -> Tree:
    """The tree that the layers of an image's archive make."""
    tree: dict[str, Entry] = {}
    with tarfile.open(path) as archive:
        for name in layers.names(archive):
            with layers.opened(archive, name) as layer:
                tree = layers.laid(tree, _members(layer, tree))
    return tree


def of_image(image: Image) -> Tree:
    """What an image of the engine holds, but for what the engine fills.

    Read as rootfs reads: from the layers' folders where this account may, else from the engine's export.
    """
    if folders := rootfs.layers(image):
        try:
            return of_folders(folders)
        except PermissionError:  # a rootless engine's files of other accounts
            pass
    with rootfs.exported(image) as archive:
        return of_export(archive)


def of_folders(folders: list[Path]) -> Tree:
    """The tree of layers that lie on this machine, top first. Files are not read.

    The owner is told to root alone: a rootless engine shifts every uid.
    """
    is_root = os.geteuid() == 0
    found = rootfs.everything("", [str(each) for each in folders])
    return {path: _placed(place, is_root) for path, place, _ in found if not is_engines(path)}


def of_export(archive: tarfile.TarFile) -> Tree:
    """The tree of one archive of a whole file system, which may be a stream."""
    return {path: entry for path, _, entry in _members(archive, {}) if not is_engines(path)}


def _placed(place: str, is_root: bool) -> Entry:
    state = os.lstat(place)
    kind, mode = KINDS[stat.S_IFMT(state.st_mode)], stat.S_IMODE(state.st_mode)
    owner = (state.st_uid, state.st_gid) if is_root else None
    if kind == FILE:
        return Entry(kind, mode, owner, size=state.st_size, place=place)
    if kind in (CHARACTERS, BLOCKS):
        return Entry(kind, mode, owner, f"{os.major(state.st_rdev)},{os.minor(state.st_rdev)}")
    return Entry(kind, mode, owner, os.readlink(place) if kind == LINK else "")


def _members(archive: tarfile.TarFile, below: Mapping[str, Entry]) -> Iterator[tuple[str, bool, Entry]]:
    """The entries of an archive for ``layers.laid``; a hard link is what it links to, here or below."""
    seen: dict[str, Entry] = {}
    for path, is_folder, member in layers.members(archive):
        if member.islnk():
            target = layers.plain(member.linkname)
            entry = seen.get(target) or below[target]
        else:
            entry = _packed(archive, member)
        seen[path] = entry
        yield path, is_folder, entry


def _packed(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    kind = OF_TAR.get(member.type, FILE)
    mode, holds = member.mode & 0o7777, ""
    if kind == LINK:
        mode, holds = 0o777, member.linkname  # no mode of a link means anything, and engines write several
    elif kind in (CHARACTERS, BLOCKS):
        holds = f"{member.devmajor},{member.devminor}"
    elif content := archive.extractfile(member):
        holds = digests.sha256_stream(content)
    return Entry(kind, mode, (member.uid, member.gid), holds, member.size if kind == FILE else 0)


def is_engines(path: str) -> bool:
    """Whether the engine fills this path when it starts a container."""
    return path.startswith(tuple(f"{each}/" for each in OF_THE_ENGINE)) or path in OF_THE_ENGINE
