"""Image archives as engines write them, with layers that replace, hide and link files, and the resulting tree."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

from images.contents.tree import CHARACTERS, FILE, FOLDER, LINK, Entry

OWNER = (7, 8)
Member = tuple[str, str]  # path and text; a path ending with / is a folder, a text starting with -> or = a link


def layer(*members: Member) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, text in members:
            new = tarfile.TarInfo(path.rstrip("/"))
            (new.uid, new.gid), new.mode = OWNER, 0o640
            if path.endswith("/"):
                new.type, new.mode = tarfile.DIRTYPE, 0o755
            elif text.startswith("->"):
                new.type, new.linkname = tarfile.SYMTYPE, text[2:]
            elif text.startswith("="):
                new.type, new.linkname = tarfile.LNKTYPE, text[1:]
            elif text == "null":
                new.type, new.devmajor, new.devminor = tarfile.CHRTYPE, 1, 3
            new.size = len(text) if new.isreg() else 0
            archive.addfile(new, io.BytesIO(text.encode()))
    return packed.getvalue()


def saved(folder: Path, *layers: bytes) -> Path:
    """Write an archive as `docker save` does."""
    names = [f"{index}/layer.tar" for index in range(len(layers))]
    manifest = json.dumps([{"Config": "c.json", "Layers": names}]).encode()
    return packed(folder / "docker.tar", {**dict(zip(names, layers)), "manifest.json": manifest})


def laid_out(folder: Path, *layers: bytes) -> Path:
    """Write an archive of the OCI layout with compressed layers."""
    blobs = [gzip.compress(each) for each in layers]
    manifest = json.dumps({"layers": [{"digest": digest(each)} for each in blobs]}).encode()
    index = json.dumps({"manifests": [{"digest": digest(manifest)}]}).encode()
    files = {f"blobs/{digest(each).replace(':', '/')}": each for each in (*blobs, manifest)}
    return packed(folder / "oci.tar", {"index.json": index, **files})


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def packed(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            new = tarfile.TarInfo(name)
            new.size = len(content)
            archive.addfile(new, io.BytesIO(content))
    return path


def held(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def file(text: str) -> Entry:
    """Return the tree's entry of a file that ``layer`` packed."""
    return Entry(FILE, 0o640, OWNER, held(text), len(text))


LAYERS = (
    layer(("a/", ""), ("a/file", "one"), ("a/gone", "x"), ("old/", ""), ("old/deep/", ""), ("old/deep/file", "x")),
    layer(("./a/file", "two"), ("a/.wh.gone", ""), ("a/hard", "=a/file"), ("new", "->a/file"), ("null", "null")),
    layer((".wh.old", ""), ("b/", ""), ("b/spa ced 'q\"\\", "three"), ("anew/", ""), ("anew/x", "1")),
    layer(("anew/", ""), ("anew/.wh..wh..opq", ""), ("anew/y", "2"), ("a/file", "four")),
)
WANTED = {
    "a": Entry(FOLDER, 0o755, OWNER),
    "a/file": file("four"),
    "a/hard": file("two"),
    "new": Entry(LINK, 0o777, OWNER, "a/file"),
    "null": Entry(CHARACTERS, 0o640, OWNER, "1,3"),
    "b": Entry(FOLDER, 0o755, OWNER),
    "b/spa ced 'q\"\\": file("three"),
    "anew": Entry(FOLDER, 0o755, OWNER),
    "anew/y": file("2"),
}
