"""Image archives as engines write them, with every effect of a layer on those below, and the tree that they make."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from images.contents.filesystem import CHARACTERS, FILE, FOLDER, LINK, Entry, Tree, differing, entries
from images.export.export import layer_names

OWNER = (7, 8)
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
Member = tuple[str, str]  # path and text; a path that ends in / is a folder, a text that begins with -> or = a link


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


def docker_archive(folder: Path, *layers: bytes) -> Path:
    """An archive as `docker save` writes it."""
    names = [f"{index}/layer.tar" for index in range(len(layers))]
    manifest = json.dumps([{"Config": "c.json", "Layers": names}]).encode()
    return write_tar(folder / "docker.tar", {**dict(zip(names, layers)), "manifest.json": manifest})


def oci_archive(folder: Path, *layers: bytes) -> Path:
    """An archive of the OCI layout, with compressed layers."""
    blobs = [gzip.compress(each) for each in layers]
    manifest = json.dumps({"layers": [{"digest": digest(each)} for each in blobs]}).encode()
    index = json.dumps({"manifests": [{"digest": digest(manifest)}]}).encode()
    files = {f"blobs/{digest(each).replace(':', '/')}": each for each in (*blobs, manifest)}
    return write_tar(folder / "oci.tar", {"index.json": index, **files})


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            new = tarfile.TarInfo(name)
            new.size = len(content)
            archive.addfile(new, io.BytesIO(content))
    return path


def archive_tree(path: Path) -> Tree:
    """The tree of an archive, by a second implementation of overlays to compare the product with."""
    tree: dict[str, Entry] = {}
    with tarfile.open(path) as archive:
        for name in layer_names(archive):
            with tarfile.open(fileobj=archive.extractfile(name), mode="r:*") as opened:
                tree = overlay(tree, entries(opened, tree))
    return tree


def overlay(below: Tree, members: Iterable[tuple[str, bool, Entry]]) -> dict[str, Entry]:
    """The tree of a layer (path, whether it is a folder, its entry) over those below."""
    above, hidden, emptied = {}, set(), set()
    for path, is_folder, entry in members:
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

    def is_covered(path: str) -> bool:
        parts = path.split("/")
        parents = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
        return path in hidden or any(each in hidden or f"{each}/" in emptied for each in parents)

    return {path: entry for path, entry in below.items() if not is_covered(path)} | above


def differences(first: Tree, second: Tree) -> list[str]:
    """One line per path that differs."""
    return [f"{path}: {a or 'missing'} | {b or 'missing'}" for path, a, b in differing(first, second)]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def file(text: str) -> Entry:
    """The entry that ``layer`` makes of a text."""
    return Entry(FILE, 0o640, OWNER, sha256(text), len(text))


LAYERS = (
    layer(("a/", ""), ("a/file", "one"), ("a/gone", "x"), ("old/", ""), ("old/deep/", ""), ("old/deep/file", "x")),
    layer(("./a/file", "two"), ("a/.wh.gone", ""), ("a/hard", "=a/file"), ("new", "->a/file"), ("null", "null")),
    layer((".wh.old", ""), ("b/", ""), ("b/spa ced 'q\"\\", "three"), ("anew/", ""), ("anew/x", "1")),
    layer(("anew/", ""), ("anew/.wh..wh..opq", ""), ("anew/y", "2"), ("a/file", "four")),
)
EXPECTED = {
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
