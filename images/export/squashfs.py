"""Packs a squashfs of an image for Apptainer, enroot and pyxis: the engine's export, piped through mksquashfs.

enroot reads an image's configuration from three files, which replace those of the image:
https://github.com/NVIDIA/enroot/blob/main/doc/image-format.md
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from docker.models.images import Image

from images.contents import rootfs
from images.errors import CommandFailed, ToolMissing

# zstd's level 3 is several times as fast as its default of 15; every kernel since 4.14 reads it.
COMPRESSION = ("-comp", "zstd", "-Xcompression-level", "3")
ROOT = ("-root-mode", "755", "-root-uid", "0", "-root-gid", "0")


def make(image: Image, target: Path) -> None:
    """Pack the file system of an image; the same image gives the same bytes."""
    if not shutil.which("mksquashfs"):
        raise ToolMissing("mksquashfs", "squashfs-tools")
    created = datetime.strptime(image.attrs["Created"][:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    created_s = int(created.timestamp())
    argv = ["mksquashfs", "-", str(target), "-tar", "-quiet", "-no-progress", "-noappend", *COMPRESSION, *ROOT]
    # Without it mksquashfs 4.5 takes the time of the root folder from the clock, even with -root-time.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(created_s)}
    with (
        rootfs.exported(image) as exported,
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            argv, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
        ) as packer,
    ):
        assert packer.stdin
        with suppress(BrokenPipeError):  # mksquashfs failed; its exit code is checked below
            _write(exported, settings(image.attrs["Config"]), created_s, packer.stdin)
        with suppress(BrokenPipeError):
            packer.stdin.close()
        code = packer.wait()
        output.seek(0)
        if code:
            raise CommandFailed(argv, code, output.read().decode(errors="replace"))


def settings(config: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files that enroot reads as an image's configuration: environment, mounts (none) and start script."""
    entrypoint, command = (shlex.join(config.get(key) or []) for key in ("Entrypoint", "Cmd"))
    if not entrypoint and not command:
        command = "/bin/sh"
    script = [
        f"cd {shlex.quote(config.get('WorkingDir') or '/')} && unset OLDPWD || exit 1",
        "[ ! -s /etc/rc.local ] || . /etc/rc.local",  # pyxis starts its containers through this file
        f"[ $# -gt 0 ] || set -- {command}",
        f'exec {entrypoint} "$@"',
    ]
    environment = "".join(f"{each}\n" for each in config.get("Env") or [])
    return {"etc/environment": environment.encode(), "etc/fstab": b"", "etc/rc": "\n".join([*script, ""]).encode()}


def _write(exported: tarfile.TarFile, replaced: Mapping[str, bytes], created_s: int, sink: IO[bytes]) -> None:
    """Copy an export with ``replaced`` files, and no time later than the image's.

    Some folders of the export have the current time. mksquashfs 4.5 drops the leading slash of a link's target from PAX
    headers (for targets that are long or not ASCII). So the tar has GNU's format, except for files with extended
    attributes, which only PAX has.
    """
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.GNU_FORMAT) as tree:
        missing = {path.rpartition("/")[0] for path in replaced}
        for path, _, member in rootfs.members(exported):
            if path in replaced or path == ".dockerenv" or path.startswith("dev/"):
                continue
            missing.discard(path)
            member.name, member.mtime = path, min(int(member.mtime), created_s)
            if member.islnk():
                member.linkname = rootfs.plain(member.linkname)
            attributes = {key: text for key, text in member.pax_headers.items() if key.startswith("SCHILY.")}
            member.pax_headers = attributes
            tree.format = tarfile.PAX_FORMAT if attributes and member.isreg() else tarfile.GNU_FORMAT
            tree.addfile(member, exported.extractfile(member) if member.isreg() else None)
        tree.format = tarfile.GNU_FORMAT
        for path in missing:
            new = tarfile.TarInfo(path)
            new.type, new.mode, new.mtime = tarfile.DIRTYPE, 0o755, created_s
            tree.addfile(new)
        for path, content in replaced.items():
            new = tarfile.TarInfo(path)
            new.mode, new.size, new.mtime = 0o644, len(content), created_s
            tree.addfile(new, io.BytesIO(content))
