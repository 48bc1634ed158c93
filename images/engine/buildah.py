"""Reproducible builds by buildah, which sets all times in an image: the same inputs give the same bytes.

Docker 20.10 cannot; BuildKit can from 0.13 on (``rewrite-timestamp``), which has not been tried. buildah keeps its
images in .build/buildah, copies the base from the daemon, and copies the result back to it, so all later steps are the
same. The image is in OCI format, which has no HEALTHCHECK and SHELL: docker's format records the builder's host name.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from images.errors import CommandFailed, ImageError, ToolMissing
from images.host.paths import BUILDAH_STORE, ROOT
from images.host.process import run

# Without root, or with another storage, overlay does not work; vfs copies the whole image for each layer.
DRIVERS = ("overlay", "vfs")


@dataclass(frozen=True)
class Buildah:
    """buildah with its storage, and the time (seconds since 1970) that it gives to all files of an image."""

    version: str
    time_s: int
    store: Path = BUILDAH_STORE

    def __str__(self) -> str:
        return f"buildah {self.version} at {self.time_s}"

    def build(
        self,
        arguments: Sequence[str],
        base: str,
        base_id: str,
        tags: Sequence[str],
        watch: Callable[..., None],
    ) -> None:
        """Build on an image of the daemon, and copy the result to the daemon as ``tags``.

        ``arguments`` are those of `docker build` without base and tags, the context last; ``watch`` runs a command
        with a umask.
        """
        command = storage_command(self.store)
        own_tag = f"localhost/verljob/{tags[0]}"
        # A cached layer would keep the time of the build that made it. A /etc/hosts made for a step would stay.
        flags = ["--isolation", "chroot", "--timestamp", str(self.time_s), "--layers", "--no-cache", "--no-hosts"]
        flags += ["--tag", own_tag, "--build-arg", f"BASE={_copy_base(command, base, base_id)}"]
        # The steps of a build inherit our umask, and with it the permissions of the files that they make.
        watch([*command, "bud", *flags, *arguments], umask=0o022)
        for tag in tags:
            run([*command, "push", own_tag, f"docker-daemon:{_with_tag(tag)}"])
        run([*command, "rmi", own_tag])


def find(store: Path = BUILDAH_STORE) -> Buildah:
    """Return the buildah on PATH, or raise ToolMissing."""
    return Buildah(version(), time_s(), store)


def version() -> str:
    """Return buildah's version, or raise ToolMissing."""
    if not shutil.which("buildah"):
        raise ToolMissing("buildah", "buildah")
    return str(json.loads(run(["buildah", "version", "--json"]))["version"])


def time_s() -> int:
    """Return the time for the image: SOURCE_DATE_EPOCH, else the time of this checkout's commit."""
    if (given := source_date_epoch()) is not None:
        return given
    try:
        return int(run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]))
    except CommandFailed as no_git:
        raise ImageError("this checkout has no commit to take the image's time from: set SOURCE_DATE_EPOCH") from no_git


def source_date_epoch() -> int | None:
    """Return SOURCE_DATE_EPOCH, or None if it is not set."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if given and not given.isdigit():
        raise ImageError(f"SOURCE_DATE_EPOCH={given!r} is not a number: set it to seconds since 1970")
    return int(given) if given else None


def storage_command(store: Path) -> list[str]:
    """Return the buildah command with our storage, with the first storage driver that works on this host."""
    failures = []
    for driver in DRIVERS:
        argv = ["buildah", "--root", str(store / driver), "--runroot", str(store / "run"), "--storage-driver", driver]
        try:
            run([*argv, "images", "--quiet"])
        except CommandFailed as failure:
            failures.append(f"{driver}: {failure.output.strip()}")
        else:
            return argv
    raise ImageError(f"buildah cannot use {store}: {'; '.join(failures)}")


def _copy_base(command: Sequence[str], base: str, base_id: str) -> str:
    """Copy the base from the daemon if buildah does not have it; return its ID, which is the same for both."""
    image_id = base_id.rpartition(":")[2]
    if image_id not in run([*command, "images", "--quiet", "--no-trunc"]):
        run([*command, "pull", f"docker-daemon:{_with_tag(base)}"])
    return image_id


def _with_tag(reference: str) -> str:
    return reference if ":" in reference else f"{reference}:latest"
