"""A squashfs of an image, as enroot and pyxis start it: made from the image's archive, and read back.

Beside the image's own files it has the three by which enroot knows what the image's configuration says:
https://github.com/NVIDIA/enroot/blob/main/doc/image-format.md
"""

from __future__ import annotations

import copy
import hashlib
import io
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from images.contents import BLOCK, Entry, Tree, laid, layers, members, opened, plain
from images.errors import CommandFailed, ToolMissing
from images.process import run

# zstd's level 3 packs several times as fast as its default of 15; every kernel from 4.14 on reads it.
COMPRESSION = ("-comp", "zstd", "-Xcompression-level", "3")
KINDS = {"D": "folder", "S": "link", "C": "device", "B": "device", "I": "fifo", "R": "file"}
LINE = re.compile(r"((?:\\.|[^\\ ])+) (.) (.*)")


def make(archive: Path, config: Mapping[str, Any], created_s: int, target: Path) -> list[str]:
    """Pack the tree of an archive of `docker save`; the paths of enroot's that take the place of the image's.

    ``config`` is the image's configuration, ``created_s`` its time: the same image gives the same bytes.
    """
    if not shutil.which("mksquashfs"):
        raise ToolMissing("mksquashfs", "squashfs-tools")
    flags = ["-tar", "-quiet", "-no-progress", "-noappend", *COMPRESSION, "-mkfs-time", str(created_s)]
    argv = ["mksquashfs", "-", str(target), *flags, "-root-mode", "755", "-root-uid", "0", "-root-gid", "0"]
    own = settings(config)
    added = list(own)
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT) as packer,
    ):
        assert packer.stdin
        with suppress(BrokenPipeError):  # it has all it wants, before tar's padding, or ended and said why
            _pour(archive, own, created_s, packer.stdin, added)
        with suppress(BrokenPipeError):
            packer.stdin.close()
        code = packer.wait()
        said.seek(0)
        if code:
            raise CommandFailed(argv, code, said.read().decode(errors="replace"))
    return added


def settings(config: Mapping[str, Any]) -> dict[str, bytes]:
    """What enroot reads in place of an image's configuration: environment, mounts (none), and what is started."""
    entrypoint, command = (shlex.join(config.get(key) or []) for key in ("Entrypoint", "Cmd"))
    if not entrypoint and not command:
        command = "/bin/sh"
    folder = shlex.quote(config.get("WorkingDir") or "/")
    script = f'cd {folder} && unset OLDPWD || exit 1\n[ $# -gt 0 ] || set -- {command}\nexec {entrypoint} "$@"\n'
    environment = "".join(f"{each}\n" for each in config.get("Env") or [])
    return {"etc/environment": environment.encode(), "etc/fstab": b"", "etc/rc": script.encode()}


def _pour(archive: Path, own: Mapping[str, bytes], created_s: int, sink: IO[bytes], added: list[str]) -> None:
    """Write the image's tree as one tar, folders first; ``added`` gets the folders that are made for ``own``."""
    with tarfile.open(archive) as image, tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as tree:
        names = layers(image)
        seen: dict[str, tuple[int, tarfile.TarInfo]] = {}
        for number, name in enumerate(names):
            with opened(image, name) as layer:
                found = [(path, folder, (number, member)) for path, folder, member in members(layer)]
            seen = laid(seen, found)
        for path in sorted(path for path, (_, member) in seen.items() if member.isdir()):
            tree.addfile(_named(seen[path][1], path))
        for number, name in enumerate(names):
            with opened(image, name) as layer:
                _pour_layer(layer, number, seen, own, tree)
        missing = sorted({path.rpartition("/")[0] for path in own} - seen.keys())
        added += missing
        for path in missing:
            new = tarfile.TarInfo(path)
            new.type, new.mode, new.mtime = tarfile.DIRTYPE, 0o755, created_s
            tree.addfile(new)
        for path, content in own.items():
            new = tarfile.TarInfo(path)
            new.mode, new.size, new.mtime = 0o644, len(content), created_s
            tree.addfile(new, io.BytesIO(content))


def _pour_layer(
    layer: tarfile.TarFile,
    number: int,
    seen: Mapping[str, tuple[int, tarfile.TarInfo]],
    own: Mapping[str, bytes],
    tree: tarfile.TarFile,
) -> None:
    """What of a layer is seen; a hard link to a file that an upper layer replaced is a file itself."""
    poured: dict[int, str] = {}
    by_path: dict[str, tarfile.TarInfo] = {}
    for path, folder, member in members(layer):
        by_path[path] = by_path[plain(member.linkname)] if member.islnk() else member
        if folder or path in own or seen.get(path, (-1, None))[0] != number:
            continue
        source = by_path[path]
        if source.isreg() and (first := poured.setdefault(source.offset, path)) != path:
            link = _named(source, path)
            link.type, link.linkname, link.size = tarfile.LNKTYPE, first, 0
            tree.addfile(link)
        else:
            tree.addfile(_named(source, path), layer.extractfile(source) if source.isreg() else None)


def _named(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
    new = copy.copy(member)
    new.name = path
    new.pax_headers = {key: text for key, text in member.pax_headers.items() if key.startswith("SCHILY.")}
    return new


@contextmanager
def _pseudo_file(path: Path) -> Iterator[IO[bytes]]:
    """What `unsquashfs -pf` (squashfs-tools from 4.5 on) tells of a squashfs; it asks nobody to be root."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        told = Path(folder) / "pseudo"
        run(["unsquashfs", "-pf", str(told), str(path)])
        with told.open("rb") as file:
            yield file


def read(path: Path) -> Tree:
    """The tree of a squashfs, without extended attributes.

    A line a path, ``NAME TYPE TIME MODE UID GID [REST]``, of a hard link ``NAME L PATH``; then the files' contents, of
    which a line has length and offset.
    """
    tree, links = Tree(), {}
    with _pseudo_file(path) as file:
        lines = [line.decode("utf-8", "surrogateescape").rstrip("\n") for line in iter(file.readline, b"#\n")]
        for _ in range(2):  # START OF DATA, and another #
            file.readline()
        start = file.tell()
        for told in filter(None, map(LINE.fullmatch, lines)):
            name, kind, rest = _plain(told[1]), told[2], told[3]
            if kind == "L":
                links[name] = _plain(rest)
            elif name != "/":
                _, mode, uid, gid, *more = rest.split(" ", 4)
                holds = _holds(file, start, kind, "".join(more))
                tree[name] = Entry(KINDS[kind], int(mode, 8), (int(uid), int(gid)), holds)
    return {**tree, **{name: tree[target] for name, target in links.items()}}


def _plain(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


def _holds(file: IO[bytes], start: int, kind: str, rest: str) -> str:
    if kind == "R":
        size, offset = (int(word) for word in rest.split()[:2])
        return _part(file, start + offset, size)
    if kind in "CB":
        return f"{kind.lower()} {','.join(rest.split())}"
    return rest if kind == "S" else ""


def _part(file: IO[bytes], start: int, size: int) -> str:
    digest = hashlib.sha256()
    file.seek(start)
    while size > 0 and (block := file.read(min(size, BLOCK))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()
