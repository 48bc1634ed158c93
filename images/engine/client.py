"""The docker client that builds, chosen by bootstrap/engine.sh, which `./run` sources as well.

The first ``docker`` on PATH may not support BuildKit. It then silently falls back to the classic builder, which has no
``RUN --mount``. docker-py cannot drive BuildKit (docker/docker-py#2230): the chosen client builds and pushes; docker-py
inspects images and runs containers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from images.errors import CommandFailed, EngineMissing
from images.host.paths import ROOT
from images.host.process import run


@dataclass(frozen=True)
class Engine:
    """A docker client that supports BuildKit."""

    client: str
    version: str
    buildx: bool

    def __str__(self) -> str:
        how = "its buildx plugin" if self.buildx else "DOCKER_BUILDKIT=1"
        return f"docker {self.version} at {self.client}, BuildKit through {how}"

    @property
    def environment(self) -> Mapping[str, str]:
        return {"DOCKER_BUILDKIT": "1"}

    def build_argv(self, arguments: Sequence[str], output: Path | None = None) -> list[str]:
        """Return the command that builds an image with BuildKit, or writes its files into the folder ``output``."""
        verb = ["buildx", "build"] if self.buildx else ["build"]
        load = ["--load"] if self.buildx else []
        target = ["--output", f"type=local,dest={output}"] if output else load
        return [self.client, *verb, *target, *arguments]


def choose(environment: Mapping[str, str] | None = None) -> Engine:
    """Return the first docker client on PATH that supports BuildKit; VERLJOB_DOCKER names one and skips the search."""
    environment = os.environ if environment is None else environment
    return _choose(environment.get("PATH", os.defpath), environment.get("VERLJOB_DOCKER", ""))


@lru_cache
def _choose(path: str, named: str) -> Engine:
    bash = shutil.which("bash") or "bash"
    argv = [bash, str(ROOT / "bootstrap" / "engine.sh")]
    try:
        client, version, buildx = run(argv, {"PATH": path, "VERLJOB_DOCKER": named}, timeout_s=60).splitlines()
    except CommandFailed as failure:
        rejected = "; ".join(failure.output.split("\n")).strip("; ") or "no docker on PATH"
        raise EngineMissing(
            f"no docker client on this machine supports BuildKit: {rejected}. Install Debian's docker.io (20.10) or "
            "the docker-buildx plugin, or name a client with VERLJOB_DOCKER=/path/to/docker."
        ) from failure
    return Engine(client, version, buildx=buildx == "true")
