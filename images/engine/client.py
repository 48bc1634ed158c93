"""Chooses the docker client that builds.

The first ``docker`` on PATH may not support BuildKit. It then silently falls back to the classic builder, which has no
``RUN --mount``. So every client on PATH is probed, and the choice is reported. docker-py cannot drive BuildKit
(docker/docker-py#2230): the chosen client builds and pushes; docker-py inspects images and runs containers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from images.errors import CommandFailed, EngineMissing
from images.host.process import run

# Since 23.0 `docker build` needs the buildx plugin for BuildKit; before, the client had BuildKit built in.
FIRST_WITHOUT_BUILTIN_BUILDKIT = 23


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
    rejected = []
    for client in clients_on_path(environment):
        engine, reason = probe(client)
        if engine:
            return engine
        rejected.append(f"{client} ({reason})")
    raise EngineMissing(
        f"no docker client on this machine supports BuildKit: {'; '.join(rejected) or 'no docker on PATH'}. Install "
        "Debian's docker.io (20.10) or the docker-buildx plugin, or name a client with VERLJOB_DOCKER=/path/to/docker."
    )


def clients_on_path(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield every docker on PATH in PATH's order, each file once."""
    if named := environment.get("VERLJOB_DOCKER"):
        yield named
        return
    seen = set()
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        client = Path(folder) / "docker"
        if client.is_file() and os.access(client, os.X_OK) and client.resolve() not in seen:
            seen.add(client.resolve())
            yield str(client)


@lru_cache
def probe(client: str) -> tuple[Engine | None, str]:
    """Return the engine of this client, or the reason why it cannot build; runs once per process."""
    try:
        version, buildx = _version(client), _has_buildx(client)
    except CommandFailed as failure:
        return None, str(failure)
    major = version.split(".")[0]
    if buildx or (major.isdigit() and int(major) < FIRST_WITHOUT_BUILTIN_BUILDKIT):
        return Engine(client, version, buildx=buildx), ""
    return None, f"client {version} without the buildx plugin"


def _has_buildx(client: str) -> bool:
    try:
        run([client, "buildx", "version"], timeout_s=30)
    except CommandFailed:
        return False
    return True


def _version(client: str) -> str:
    try:
        return run([client, "version", "--format", "{{.Client.Version}}"], timeout_s=30).strip()
    except CommandFailed:
        # Without a daemon the client prints its own version and then exits with 1; `--version` needs no daemon.
        return run([client, "--version"], timeout_s=30).split("version", 1)[-1].split(",")[0].strip()
