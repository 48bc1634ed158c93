"""Services of a site on this machine: a package index, a mirror of Debian and a proxy, each with its own password.

All three are one server, which records the requests that it answered.
"""

from __future__ import annotations

import base64
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.images.index_server import DEBIAN_PATH, IndexHandler, IndexServer, bridge_address
from tests.support.images.serving import serving

__all__ = ["Request", "Services", "bridge_address", "running"]


@dataclass(frozen=True)
class Request:
    """A request that was answered."""

    path: str
    proxied: bool


class Services(IndexServer):
    """An index server that demands the password of ``user`` for index, apt and proxy."""

    def __init__(self, address: str, files: Path, cache: Path, user: str, passwords: dict[str, str]) -> None:
        super().__init__(address, files, cache, Handler)
        self.credentials = {
            service: "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
            for service, password in passwords.items()
        }
        self.requests: list[Request] = []


def running(
    address: str, files: Path, cache: Path, user: str, passwords: dict[str, str]
) -> AbstractContextManager[Services]:
    """Serve at ``address``."""
    return serving(Services(address, files, cache, user, passwords))


class Handler(IndexHandler):
    server: Services

    def do_GET(self) -> None:  # noqa: N802  as http.server calls it
        credentials, url = self.server.credentials, urlsplit(self.path)
        if url.netloc and self.headers.get("Proxy-Authorization") != credentials["proxy"]:
            return self.respond(407, b"", Proxy_Authenticate='Basic realm="proxy"')
        service = "apt" if url.path.startswith(DEBIAN_PATH) else "index"
        if self.headers.get("Authorization") != credentials[service]:
            return self.respond(401, b"", WWW_Authenticate=f'Basic realm="{service}"')
        self.server.requests.append(Request(url.path, proxied=bool(url.netloc)))
        return super().do_GET()
