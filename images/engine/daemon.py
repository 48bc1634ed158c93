"""The daemon behind the docker client, and what each build asks it.

A build asks over the daemon's socket by the standard library alone: docker-py and requests take longer to load than the
engine takes for a one-line edit. Where DOCKER_HOST names another way than a socket of this machine, and for all that is
asked more seldom, it is docker-py.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from images.errors import EngineMissing, ImageError, NotBuilt

if TYPE_CHECKING:
    import docker
    from docker.models.images import Image

SOCKET = "unix:///var/run/docker.sock"  # of docker's own clients where DOCKER_HOST says nothing
TIMEOUT_S = 120


@dataclass(frozen=True)
class Inspected:
    """An image of this machine as the daemon describes it; docker-py's Image has the same under the same names."""

    attrs: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.attrs["Id"])

    @property
    def tags(self) -> list[str]:
        return [tag for tag in self.attrs.get("RepoTags") or [] if tag != "<none>:<none>"]

    def history(self) -> list[dict[str, Any]]:
        """What made it, the last first."""
        return list(_told("GET", f"/images/{self.id}/history"))

    def tag(self, reference: str) -> None:
        """Give it a name more."""
        _told("POST", f"/images/{self.id}/tag?{urlencode({'repo': reference})}")


def find(reference: str) -> Inspected | None:
    """The image of this name or ID, if the daemon has it."""
    status, said = _asked("GET", f"/images/{quote(reference, safe='/:@')}/json")
    return None if status == HTTPStatus.NOT_FOUND else Inspected(_read(status, said))


def get(reference: str) -> Inspected:
    """The same; NotBuilt where there is none."""
    if found := find(reference):
        return found
    raise NotBuilt(reference)


@lru_cache(maxsize=1)
def daemon_version() -> dict[str, Any]:
    """What the daemon says of itself; asked once a process."""
    return dict(_told("GET", "/version"))


@lru_cache(maxsize=1)
def storage() -> Path:
    """Where the daemon keeps its images; asked once a process, since it counts much else for the answer."""
    return Path(_told("GET", "/info")["DockerRootDir"])


def architecture() -> str:
    """The processor for which the daemon builds, by Go's name, which is Debian's, too."""
    return str(daemon_version()["Arch"])


@lru_cache(maxsize=1)
def daemon() -> docker.DockerClient:
    """The daemon, through docker-py; EngineMissing when none answers."""
    import docker
    from docker.errors import DockerException

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


class _Connection(HTTPConnection):
    """HTTP over a socket of this machine."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _asked(verb: str, path: str) -> tuple[int, bytes]:
    """Status and body of an answer, by the newest version of the API that the daemon has."""
    host = os.environ.get("DOCKER_HOST") or SOCKET
    if not host.startswith("unix://"):
        api = daemon().api
        answer = api.request(verb, f"{api.base_url}{path}", timeout=TIMEOUT_S)
        return answer.status_code, answer.content
    connection = _Connection(host.removeprefix("unix://"))
    try:
        connection.request(verb, path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, HTTPException) as silence:
        raise _missing(silence) from silence
    finally:
        connection.close()


def _told(verb: str, path: str) -> Any:
    return _read(*_asked(verb, path))


def _read(status: int, said: bytes) -> Any:
    if status >= HTTPStatus.BAD_REQUEST:
        raise ImageError(f"the Docker daemon answered {status}: {said.decode(errors='replace').strip()[:500]}")
    return json.loads(said) if said.strip() else None


def _missing(silence: Exception) -> EngineMissing:
    return EngineMissing(
        f"no Docker daemon answers ({silence}). Start dockerd, or let `./run` start one; DOCKER_HOST names another."
    )
