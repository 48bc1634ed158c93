"""The command line of an image's Python on a login node, with a job's folders of models and data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_ENTRYPOINTS = Path(__file__).parents[2] / "entrypoints"
_PASSED = ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy")


@dataclass(frozen=True)
class Python:
    """The Python of an image, with VERLJOB_RUNTIME: in a container of docker or podman, or with bare without one.

    It sees the recipe, data and models at their own paths. In a container, folders that are not ``writable`` are
    read-only.
    """

    image: str
    recipe: Path
    environ: Mapping[str, str]
    writable: tuple[Path, ...] = ()

    @property
    def runtime(self) -> str:
        """VERLJOB_RUNTIME, docker by default."""
        return self.environ.get("VERLJOB_RUNTIME") or "docker"

    def argv(self, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs it with ``arguments``."""
        if self.runtime == "bare":
            return [str(Path(self.image) / "bin" / "python3"), *arguments]
        return [*_container(self), "python3", *arguments]

    def env(self) -> dict[str, str]:
        """Return the environment of the command."""
        return {**self.environ, **({"PYTHONPATH": str(_ENTRYPOINTS)} if self.runtime == "bare" else {})}


def _container(python: Python) -> Iterator[str]:
    """Yield the command up to the image. Values are passed by name, so that no secret is in the command line."""
    runtime, environ = python.runtime, python.environ
    client = environ.get("VERLJOB_DOCKER") or runtime
    yield from (client, "run", "--rm", "--network", "host", "--tmpfs", "/tmp", "--env", "HOME=/tmp")  # noqa: S108
    yield from ("--user", f"{os.getuid()}:{os.getgid()}") if runtime == "docker" else ()
    for name in _PASSED:
        yield from ("--env", name) if name in environ else ()
    hub = hub_folder(environ)
    yield from ("--env", f"HF_HOME={hub}") if hub.is_dir() else ()
    for folder in _folders(python, hub):
        mode = "" if folder in python.writable else ",readonly"
        yield from ("--mount", f"type=bind,source={folder},target={folder}{mode}")
    if environ.get("VERLJOB_VERL"):
        yield from ("--env", f"PYTHONPATH={environ['VERLJOB_VERL']}")
    yield python.image


def data_folder(environ: Mapping[str, str]) -> Path:
    """Return VERLJOB_DATA, the folder of data sets and created models."""
    return Path(environ.get("VERLJOB_DATA") or Path.home() / ".cache" / "verljob")


def hub_folder(environ: Mapping[str, str]) -> Path:
    """Return HF_HOME, the Hugging Face cache."""
    return Path(environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")


def _folders(python: Python, hub: Path) -> list[Path]:
    """Return the existing folders, without those that are in a mounted one, unless they have to be writable."""
    names = ("VERLJOB_MODEL", "VERLJOB_VERL", "VERLJOB_DATA_SOURCE")
    given = map(Path, filter(None, map(python.environ.get, names)))
    paths = dict.fromkeys([python.recipe.parent, hub, data_folder(python.environ), *given])
    existing = [path for path in paths if path.is_absolute() and path.is_dir()]
    return [
        path for path in existing if path in python.writable or not any(other in path.parents for other in existing)
    ]
