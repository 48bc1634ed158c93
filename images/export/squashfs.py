"""A squashfs of an image, as enroot and pyxis start it: made from the image's archive.

Beside the image's own files it has the three by which enroot knows what the image's configuration says:
https://github.com/NVIDIA/enroot/blob/main/doc/image-format.md
"""

from __future__ import annotations

import copy
import io
import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from images.contents import layers
from images.errors import CommandFailed, ToolMissing

# zstd's level 3 packs several times as fast as its default of 15; every kernel from 4.14 on reads it.
COMPRESSION = ("-comp", "zstd", "-Xcompression-level", "3")


def make(archive: Path, config: Mapping[str, Any], created_s: int, target: Path) -> list[str]:
    """Pack the tree of an archive of `docker save`; the paths of enroot's that take the place of the image's.

    ``config`` is the image's configuration, ``created_s`` its time: the same image gives the same bytes.
    """
    if not shutil.which("mksquashfs"):
        raise ToolMissing("mksquashfs", "squashfs-tools")
    flags = ["-tar", "-quiet", "-no-progress", "-noappend", *COMPRESSION]
    argv = ["mksquashfs", "-", str(target), *flags, "-root-mode", "755", "-root-uid", "0", "-root-gid", "0"]
    # The file's own time and the latest of its tree. mksquashfs 4.5 dates the root of what it reads as a tar by the
    # clock, whatever -root-time says.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(created_s)}
    own = settings(config)
    added = list(own)
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT) as packer,
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
        names = layers.names(image)
        seen: dict[str, tuple[int, tarfile.TarInfo]] = {}
        for number, name in enumerate(names):
            with layers.opened(image, name) as layer:
                found = [(path, folder, (number, member)) for path, folder, member in layers.members(layer)]
            seen = layers.laid(seen, found)
        for path in sorted(path for path, (_, member) in seen.items() if member.isdir()):
            tree.addfile(_named(seen[path][1], path))
        for number, name in enumerate(names):
            with layers.opened(image, name) as layer:
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
    for path, folder, member in layers.members(layer):
        by_path[path] = by_path[layers.plain(member.linkname)] if member.islnk() else member
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
