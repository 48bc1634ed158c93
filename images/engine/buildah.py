"""Reproducible builds by buildah, which sets all times in an image: the same inputs give the same bytes.

Docker 20.10 cannot; BuildKit from 0.13 on can (``rewrite-timestamp``) and has not been tried. buildah keeps what it
builds in .build/buildah, takes the base from the engine, and hands the image back to it: what follows is as always.
It is of the OCI format, which has no place for HEALTHCHECK and SHELL: docker's has the builder's host name in it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from images.engine.daemon import get
from images.errors import CommandFailed, ImageError, ToolMissing
from images.host.paths import BUILDAH_STORE, ROOT
from images.host.process import run, stream

# Without root or with another storage there is no overlay; vfs copies the whole image for each layer.
DRIVERS = ("overlay", "vfs")


def given_time_s(environment: Mapping[str, str] | None = None) -> int | None:
    """SOURCE_DATE_EPOCH, where it is set."""
    environment = os.environ if environment is None else environment
    given = environment.get("SOURCE_DATE_EPOCH", "")
    if given and not given.isdigit():
        raise ImageError(f"SOURCE_DATE_EPOCH is {given!r}: wanted are seconds since 1970")
    return int(given) if given else None


def time_s(environment: Mapping[str, str] | None = None) -> int:
    """The time that the image gets: SOURCE_DATE_EPOCH, else that of this checkout's commit."""
    if (given := given_time_s(environment)) is not None:
        return given
    try:
        return int(run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]))
    except CommandFailed as no_git:
        raise ImageError("this checkout has no commit to take the image's time from: set SOURCE_DATE_EPOCH") from no_git


def build(
    arguments: Sequence[str],
    base: str,
    tags: Sequence[str],
    *,
    watch: Callable[..., None] = stream,
    store: Path = BUILDAH_STORE,
) -> None:
    """Build on an image that the engine has, and give the engine the result as ``tags``.

    ``arguments`` are those of `docker build` without base and tags, the context last; ``watch`` runs buildah's own
    build, as a command and a umask.
    """
    buildah = command(store)
    own_tag = f"localhost/verljob/{tags[0]}"
    # A layer out of the cache would keep the time of the build that made it. A /etc/hosts made for a step would stay.
    flags = ["--isolation", "chroot", "--timestamp", str(time_s()), "--layers", "--no-cache", "--no-hosts"]
    flags += ["--tag", own_tag, "--build-arg", f"BASE={_taken(buildah, base)}"]
    # The steps of a build inherit our umask, and with it the permissions of what they make.
    watch([*buildah, "bud", *flags, *arguments], umask=0o022)
    for tag in tags:
        run([*buildah, "push", own_tag, f"docker-daemon:{tag if ':' in tag else f'{tag}:latest'}"])
    run([*buildah, "rmi", own_tag])


def version() -> str:
    """buildah's version; ToolMissing where there is none."""
    if not shutil.which("buildah"):
        raise ToolMissing("buildah", "buildah")
    return str(json.loads(run(["buildah", "version", "--json"]))["version"])


def builder() -> str:
    """What of buildah may make another image of the same files."""
    return f"buildah {version()} at {time_s()}"


def command(store: Path) -> list[str]:
    """buildah with a storage of ours, by the first driver that works here."""
    failures = []
    for driver in DRIVERS:
        words = ["buildah", "--root", str(store / driver), "--runroot", str(store / "run"), "--storage-driver", driver]
        try:
            run([*words, "images", "--quiet"])
        except CommandFailed as failure:
            failures.append(f"{driver}: {failure.output.strip()}")
        else:
            return words
    raise ImageError(f"buildah cannot use {store}: {'; '.join(failures)}")


def _taken(buildah: Sequence[str], base: str) -> str:
    """The ID of the base, which both know it by, after it was copied where buildah lacks it."""
    image_id = str(get(base).id).rpartition(":")[2]
    if image_id not in run([*buildah, "images", "--quiet", "--no-trunc"]):
        run([*buildah, "pull", f"docker-daemon:{base if ':' in base else f'{base}:latest'}"])
    return image_id
