"""Everything that an image holds, path by path: what two images are compared by.

Read as rootfs reads: from the layers' folders where this account may, else from the engine's export. Owners and times
are left out: two builds of the same differ in times, and nothing of ours depends on an owner.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from docker.models.images import Image

from images import rootfs

# The engine fills these when it starts a container, and an export has them.
OF_THE_ENGINE = (".dockerenv", "dev", "proc", "sys", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab")
KINDS = {tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK}


@dataclass(frozen=True)
class Entry:
    """A file, folder or link. A file's content is at ``place`` on this machine, or told by ``digest``."""

    mode: int
    size: int = 0
    target: str = ""
    place: str = ""
    digest: str = ""

    def same(self, other: Entry) -> bool:
        """Whether the other is the same in kind, mode and content; files are read only where nothing else tells."""
        if (self.mode, self.size, self.target) != (other.mode, other.size, other.target):
            return False
        if not stat.S_ISREG(self.mode) or (self.place and self.place == other.place):
            return True
        if self.place and other.place:
            return filecmp.cmp(self.place, other.place, shallow=False)
        return self.content() == other.content()

    def content(self) -> str:
        """The digest of a file's content."""
        return self.digest or hashlib.sha256(Path(self.place).read_bytes()).hexdigest()


Inventory = Mapping[str, Entry]


def of(image: Image) -> Inventory:
    """What an image holds, by path without the leading slash."""
    if folders := rootfs.layers(image):
        try:
            return dict(_of_layers(folders))
        except PermissionError:  # a rootless engine's files of other accounts
            pass
    with rootfs.exported(image) as archive:
        return dict(_of_archive(archive))


def _of_layers(folders: list[Path]) -> Iterator[tuple[str, Entry]]:
    for path, place, kind in rootfs.everything("", [str(each) for each in folders]):
        if _is_engines(path):
            continue
        mode, size = (state := os.lstat(place)).st_mode, state.st_size
        if kind == rootfs.REGULAR:
            yield path, Entry(mode, size, place=place)
        else:
            yield path, Entry(mode, target=os.readlink(place) if kind == rootfs.LINK else "")


def _of_archive(archive: tarfile.TarFile) -> Iterator[tuple[str, Entry]]:
    known: dict[str, Entry] = {}
    for member in archive:
        path = member.name.removeprefix("./").rstrip("/")
        if not path or path == "." or _is_engines(path):
            continue
        if member.islnk():
            known[path] = known[member.linkname.removeprefix("./")]
        elif member.isreg():
            content = archive.extractfile(member)
            digest = hashlib.sha256(content.read() if content else b"").hexdigest()
            known[path] = Entry(stat.S_IFREG | member.mode, member.size, digest=digest)
        elif member.type in KINDS:
            known[path] = Entry(KINDS[member.type] | member.mode, target=member.linkname)
        else:
            continue
        yield path, known[path]


def _is_engines(path: str) -> bool:
    return path.startswith(tuple(f"{each}/" for each in OF_THE_ENGINE)) or path in OF_THE_ENGINE
