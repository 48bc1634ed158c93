"""Layers of an image archive: of `docker save`, or of the OCI layout (https://github.com/opencontainers/image-spec)."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from images.errors import ImageError
from images.host import digests


def names(archive: tarfile.TarFile) -> list[str]:
    """Return the members that are the image's layers, lowest first."""
    members = archive.getnames()
    if "manifest.json" in members:  # docker's; since 25 an archive also has an OCI layout
        return [str(name) for name in _read_json(archive, "manifest.json")[0]["Layers"]]
    if "index.json" in members:
        digest = _read_json(archive, "index.json")["manifests"][0]["digest"]
        return [_blob(each["digest"]) for each in _read_json(archive, _blob(digest))["layers"]]
    raise ImageError(f"{archive.name!r} is not an image archive: it has neither manifest.json nor index.json")


def diff_ids(path: Path) -> list[str]:
    """Return the digests of an archive's uncompressed layers, by which an engine identifies them."""
    found = []
    with tarfile.open(path) as archive:
        for name in names(archive):
            raw = archive.extractfile(name)
            assert raw
            compressed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            found.append(f"sha256:{digests.sha256_stream(gzip.GzipFile(fileobj=raw) if compressed else raw)}")
    return found


def members(layer: tarfile.TarFile) -> Iterator[tuple[str, bool, tarfile.TarInfo]]:
    """Yield path, whether it is a folder, and header of each member, except the root folder itself."""
    for member in layer:
        path = plain(member.name)
        if path not in ("", "."):
            yield path, member.isdir(), member


def plain(path: str) -> str:
    """Return a member's path relative to the root folder."""
    return path.removeprefix("./").strip("/")


def _read_json(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    return json.loads(file.read()) if file else None


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
