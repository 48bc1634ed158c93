"""What is in an image, path by path: out of the layers of its archive, to be held against another's.

Archives are those of `docker save` and of the OCI layout (https://github.com/opencontainers/image-spec). Nothing is
unpacked, so nobody has to be root. Times of files are no part of a comparison: two builds of one image may differ in
them alone where an engine cannot set them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar

from images.errors import ImageError

WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
BLOCK = 1 << 20
KINDS = {
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "link",
    tarfile.CHRTYPE: "device",
    tarfile.BLKTYPE: "device",
    tarfile.FIFOTYPE: "fifo",
}
T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One path: kind, permissions, owner, and what it holds: a file's sha256, a link's target, a device's numbers."""

    kind: str
    mode: int
    owner: tuple[int, int]
    holds: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.mode:04o} {self.owner[0]}:{self.owner[1]} {self.holds[:80]}".rstrip()


Tree = dict[str, Entry]


def differences(one: Tree, other: Tree) -> list[str]:
    """A line for each path that is not the same in both, by path."""
    paths = sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))
    return [f"{path}: {one.get(path, 'missing')} | {other.get(path, 'missing')}" for path in paths]


def of_archive(path: Path) -> Tree:
    """The tree that the layers of an image's archive make."""
    tree: Tree = {}
    with tarfile.open(path) as archive:
        for name in layers(archive):
            with opened(archive, name) as layer:
                tree = laid(tree, _entries(layer, tree))
    return tree


def layers(archive: tarfile.TarFile) -> list[str]:
    """The members that are the image's layers, lowest first."""
    names = archive.getnames()
    if "manifest.json" in names:  # docker's; since 25 an OCI layout lies beside it
        return [str(name) for name in _parsed(archive, "manifest.json")[0]["Layers"]]
    if "index.json" in names:
        digest = _parsed(archive, "index.json")["manifests"][0]["digest"]
        return [_blob(each["digest"]) for each in _parsed(archive, _blob(digest))["layers"]]
    raise ImageError(f"{archive.name!r} is no archive of an image: neither manifest.json nor index.json is in it")


def opened(archive: tarfile.TarFile, name: str) -> tarfile.TarFile:
    """A layer, compressed or not."""
    return tarfile.open(fileobj=archive.extractfile(name), mode="r:*")


def diff_ids(path: Path) -> list[str]:
    """The digests of an archive's layers as they are without compression, by which an engine knows them."""
    found = []
    with tarfile.open(path) as archive:
        for name in layers(archive):
            raw = archive.extractfile(name)
            assert raw
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            found.append(f"sha256:{digest_of(gzip.GzipFile(fileobj=raw) if packed else raw)}")
    return found


def laid(below: dict[str, T], layer: Iterable[tuple[str, bool, T]]) -> dict[str, T]:
    """What is seen when a layer (path, whether it is a folder, its entry) lies over what is below."""
    above, hidden, emptied = {}, set(), set()
    for path, is_folder, entry in layer:
        name = PurePosixPath(path).name
        parent = path[: len(path) - len(name)]
        if name == OPAQUE:
            emptied.add(parent)
        elif name.startswith(WHITEOUT):
            hidden.add(parent + name[len(WHITEOUT) :])
        else:
            above[path] = entry
            if not is_folder:
                hidden.add(path)
    return {path: each for path, each in below.items() if not _covered(path, hidden, emptied)} | above


def _covered(path: str, hidden: set[str], emptied: set[str]) -> bool:
    if path in hidden:
        return True
    parts = path.split("/")
    parents = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
    return any(each in hidden or f"{each}/" in emptied for each in parents)


def plain(path: str) -> str:
    """A member's path as from the root folder."""
    return path.removeprefix("./").strip("/")


def members(layer: tarfile.TarFile) -> Iterator[tuple[str, bool, tarfile.TarInfo]]:
    """A layer's members for ``laid``, in their order; the root folder itself is none."""
    for member in layer:
        path = plain(member.name)
        if path not in ("", "."):
            yield path, member.isdir(), member


def _entries(layer: tarfile.TarFile, below: Tree) -> Iterator[tuple[str, bool, Entry]]:
    seen: Tree = {}
    for path, is_folder, member in members(layer):
        if member.islnk():
            target = plain(member.linkname)
            entry = seen.get(target) or below[target]
        else:
            entry = Entry(*_attributes(member), _holds(layer, member))
        seen[path] = entry
        yield path, is_folder, entry


def _attributes(member: tarfile.TarInfo) -> tuple[str, int, tuple[int, int]]:
    mode = 0o777 if member.issym() else member.mode & 0o7777
    return KINDS.get(member.type, "file"), mode, (member.uid, member.gid)


def _holds(layer: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    if member.isreg():
        content = layer.extractfile(member)
        return digest_of(content) if content else ""
    if member.ischr() or member.isblk():
        return f"{'c' if member.ischr() else 'b'} {member.devmajor},{member.devminor}"
    return member.linkname if member.issym() else ""


def digest_of(file: IO[bytes] | gzip.GzipFile) -> str:
    """The sha256 of what is left in a file, in hex."""
    digest = hashlib.sha256()
    while block := file.read(BLOCK):
        digest.update(block)
    return digest.hexdigest()


def _parsed(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    return json.loads(file.read()) if file else None


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
