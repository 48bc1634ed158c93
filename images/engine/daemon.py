"""The Docker daemon, through docker-py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import RequestException

from images.errors import EngineMissing, ImageError, NotBuilt

if TYPE_CHECKING:
    from docker.models.images import Image

TIMEOUT_S = 120


@dataclass(frozen=True)
class Inspected:
    """An image of this machine as `docker image inspect` describes it."""

    attrs: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.attrs["Id"])

    @property
    def tags(self) -> list[str]:
        return [tag for tag in self.attrs.get("RepoTags") or [] if tag != "<none>:<none>"]

    def history(self) -> list[dict[str, Any]]:
        """The steps that made it, the newest first."""
        return list(_call("history", self.id))

    def tag(self, reference: str) -> None:
        """Add a name."""
        _call("tag", self.id, reference)


def find(reference: str) -> Inspected | None:
    """The image of this name or ID, if the daemon has it."""
    try:
        return Inspected(_call("inspect_image", reference))
    except NotBuilt:
        return None


def get(reference: str) -> Inspected:
    """The image of this name or ID; NotBuilt where there is none."""
    return Inspected(_call("inspect_image", reference))


@lru_cache(maxsize=1)
def daemon_version() -> dict[str, Any]:
    """`docker version` of the daemon; asked once a process."""
    return dict(_call("version"))


@lru_cache(maxsize=1)
def storage() -> Path:
    """The daemon's data root; asked once a process, since the daemon counts much else for `docker info`."""
    return Path(_call("info")["DockerRootDir"])


def architecture() -> str:
    """The processor for which the daemon builds, by Go's name, which is Debian's, too."""
    return str(daemon_version()["Arch"])


@lru_cache(maxsize=1)
def daemon() -> docker.DockerClient:
    """The daemon, through docker-py; EngineMissing when none answers."""
    try:
        client = docker.from_env(timeout=TIMEOUT_S)
        # requests would look for proxies and a .netrc at each request, which takes longer than the request.
        client.api.trust_env = not client.api.base_url.startswith("http+docker")  # a socket of this machine
        client.ping()
    except DockerException as silence:
        raise _missing(silence) from silence
    return client


def local(reference: str) -> Image:
    """An image of this machine as docker-py has it; NotBuilt where there is none."""
    return daemon().images.get(get(reference).id)


def _call(name: str, *arguments: str) -> Any:
    """The answer of a method of docker-py's low-level client."""
    try:
        return getattr(daemon().api, name)(*arguments)
    except ImageNotFound as absent:
        raise NotBuilt(arguments[0]) from absent
    except APIError as error:
        raise ImageError(f"the Docker daemon answered {error.status_code}: {str(error.explanation)[:500]}") from error
    except RequestException as silence:
        raise _missing(silence) from silence


def _missing(silence: Exception) -> EngineMissing:
    return EngineMissing(
        f"no Docker daemon answers ({silence}). Start dockerd, or let `./run` start one; DOCKER_HOST names another."
    )
