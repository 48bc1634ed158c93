"""The command line of a container on a login node, with a job's folders of models and data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

_PASSED = ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy")


def argv(
    runtime: str, image: str, recipe: Path, environ: Mapping[str, str], *, writable: tuple[Path, ...] = ()
) -> Iterator[str]:
    """Yield the command up to the image, with the recipe, data and models at their own paths.

    Folders outside of ``writable`` are read-only. Values are passed by name, so that no secret is in the command line.
    """
    client = environ.get("VERLJOB_DOCKER") or runtime
    yield from (client, "run", "--rm", "--network", "host", "--tmpfs", "/tmp", "--env", "HOME=/tmp")  # noqa: S108
    yield from ("--user", f"{os.getuid()}:{os.getgid()}") if runtime == "docker" else ()
    for name in _PASSED:
        yield from ("--env", name) if name in environ else ()
    hub = hub_folder(environ)
    yield from ("--env", f"HF_HOME={hub}") if hub.is_dir() else ()
    for folder in _folders(recipe, hub, environ):
        mode = "" if folder in writable else ",readonly"
        yield from ("--mount", f"type=bind,source={folder},target={folder}{mode}")
    if environ.get("VERLJOB_VERL"):
        yield from ("--env", f"PYTHONPATH={environ['VERLJOB_VERL']}")
    yield image


def data_folder(environ: Mapping[str, str]) -> Path:
    """Return VERLJOB_DATA, the folder of data sets and created models."""
    return Path(environ.get("VERLJOB_DATA") or Path.home() / ".cache" / "verljob")


def hub_folder(environ: Mapping[str, str]) -> Path:
    """Return HF_HOME, the Hugging Face cache."""
    return Path(environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")


def _folders(recipe: Path, hub: Path, environ: Mapping[str, str]) -> list[Path]:
    given = map(Path, filter(None, map(environ.get, ("VERLJOB_MODEL", "VERLJOB_VERL", "VERLJOB_DATA_SOURCE"))))
    paths = dict.fromkeys([recipe.parent, hub, data_folder(environ), *given])
    existing = [path for path in paths if path.is_absolute() and path.is_dir()]
    return [path for path in existing if not any(other in path.parents for other in existing)]
