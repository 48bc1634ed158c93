"""Layers of an image archive, and how they overlay one another.

Archives are those of `docker save` and of the OCI layout (https://github.com/opencontainers/image-spec). Nothing is
unpacked, so nobody has to be root.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from images.errors import ImageError
from images.host import digests

WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
T = TypeVar("T")


def names(archive: tarfile.TarFile) -> list[str]:
    """The members that are the image's layers, lowest first."""
    members = archive.getnames()
    if "manifest.json" in members:  # docker's; since 25 an OCI layout lies beside it
        return [str(name) for name in _parsed(archive, "manifest.json")[0]["Layers"]]
    if "index.json" in members:
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
        for name in names(archive):
            raw = archive.extractfile(name)
            assert raw
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            found.append(f"sha256:{digests.sha256_stream(gzip.GzipFile(fileobj=raw) if packed else raw)}")
    return found


def members(layer: tarfile.TarFile) -> Iterator[tuple[str, bool, tarfile.TarInfo]]:
    """A layer's members for ``laid``, in their order; the root folder itself is none."""
    for member in layer:
        path = plain(member.name)
        if path not in ("", "."):
            yield path, member.isdir(), member


def plain(path: str) -> str:
    """A member's path as from the root folder."""
    return path.removeprefix("./").strip("/")


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


def _parsed(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    return json.loads(file.read()) if file else None


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
