"""The Docker daemon, queried through docker-py."""

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
    """An image of the daemon, as `docker image inspect` describes it."""

    attrs: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.attrs["Id"])

    @property
    def tags(self) -> list[str]:
        return [tag for tag in self.attrs.get("RepoTags") or [] if tag != "<none>:<none>"]

    def history(self) -> list[dict[str, Any]]:
        """Return the steps that made the image, newest first."""
        return list(_call("history", self.id))

    def tag(self, reference: str) -> None:
        """Add a tag."""
        _call("tag", self.id, reference)


def find(reference: str) -> Inspected | None:
    """Return the image of this name or ID, or None."""
    try:
        return Inspected(_call("inspect_image", reference))
    except NotBuilt:
        return None


def get(reference: str) -> Inspected:
    """Return the image of this name or ID, or raise NotBuilt."""
    return Inspected(_call("inspect_image", reference))


@lru_cache(maxsize=1)
def daemon_version() -> dict[str, Any]:
    """Return `docker version` of the daemon; queried once per process."""
    return dict(_call("version"))


@lru_cache(maxsize=1)
def data_root() -> Path:
    """Return the daemon's data root; queried once per process, since `docker info` is slow."""
    return Path(_call("info")["DockerRootDir"])


def architecture() -> str:
    """Return the architecture for which the daemon builds, by Go's name, which is also Debian's."""
    return str(daemon_version()["Arch"])


@lru_cache(maxsize=1)
def daemon() -> docker.DockerClient:
    """Return docker-py's client of the daemon, or raise EngineMissing."""
    try:
        client = docker.from_env(timeout=TIMEOUT_S)
        # requests would check for proxies and a .netrc before each request, which takes longer than the request.
        client.api.trust_env = not client.api.base_url.startswith("http+docker")  # a socket of this machine
        client.ping()
    except DockerException as error:
        raise _missing(error) from error
    return client


def local(reference: str) -> Image:
    """Return docker-py's object of an image of the daemon, or raise NotBuilt."""
    return daemon().images.get(get(reference).id)


def _call(name: str, *arguments: str) -> Any:
    """Call a method of docker-py's low-level client, and translate its errors."""
    try:
        return getattr(daemon().api, name)(*arguments)
    except ImageNotFound as absent:
        raise NotBuilt(arguments[0]) from absent
    except APIError as error:
        raise ImageError(f"the Docker daemon answered {error.status_code}: {str(error.explanation)[:500]}") from error
    except RequestException as error:
        raise _missing(error) from error


def _missing(error: Exception) -> EngineMissing:
    return EngineMissing(
        f"no Docker daemon answers ({error}). Start dockerd, or let `./run` start one; DOCKER_HOST names another."
    )
