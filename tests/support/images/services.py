"""What a site has, on this machine: a package index and a mirror of Debian that want a password, and a proxy that wants
another. All three are one server, which notes who asked for what, and how."""

from __future__ import annotations

import base64
import http.server
import urllib.request
from contextlib import AbstractContextManager
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

from docker import DockerClient
from packaging.utils import parse_sdist_filename, parse_wheel_filename

from tests.support.images.serving import serving

DEBIAN = "http://deb.debian.org"


def bridge_address(daemon: DockerClient) -> str:
    """Address of this machine on the engine's default bridge, which builds and containers reach.

    An engine that has just made the bridge names no gateway before its next start (Docker 20.10): the bridge has the
    first address of the subnet.
    """
    pool = daemon.networks.get("bridge").attrs["IPAM"]["Config"][0]
    return str(pool.get("Gateway") or next(ip_network(pool["Subnet"]).hosts()))


@dataclass(frozen=True)
class Asked:
    """A request that was answered."""

    path: str
    proxied: bool


class Services(http.server.ThreadingHTTPServer):
    """``files`` are what the index has, ``cache`` is where the mirror keeps what it was asked for."""

    daemon_threads = True

    def __init__(self, address: str, files: Path, cache: Path, user: str, passwords: dict[str, str]) -> None:
        super().__init__((address, 0), Handler)
        self.host = f"{address}:{self.server_port}"
        self.files, self.cache = files, cache
        self.wanted = {
            place: "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
            for place, password in passwords.items()
        }
        self.asked: list[Asked] = []


def running(
    address: str, files: Path, cache: Path, user: str, passwords: dict[str, str]
) -> AbstractContextManager[Services]:
    """Serve at ``address``; ``passwords`` of ``user`` for index, apt and proxy."""
    return serving(Services(address, files, cache, user, passwords))


class Handler(http.server.BaseHTTPRequestHandler):
    server: Services
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        wanted, path = self.server.wanted, url.path
        if url.netloc and self.headers.get("Proxy-Authorization") != wanted["proxy"]:
            return self.answer(407, b"", Proxy_Authenticate='Basic realm="proxy"')
        place = "apt" if path.startswith("/debian/") else "index"
        if self.headers.get("Authorization") != wanted[place]:
            return self.answer(401, b"", WWW_Authenticate=f'Basic realm="{place}"')
        self.server.asked.append(Asked(path, proxied=bool(url.netloc)))
        return self.mirrored(path) if place == "apt" else self.indexed(path)

    def answer(self, code: int, content: bytes, **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def mirrored(self, path: str) -> None:
        """A file of Debian's, fetched once."""
        kept = self.server.cache / path.strip("/").replace("/", "_")
        if not kept.exists():
            try:
                with urllib.request.urlopen(DEBIAN + path, timeout=60) as answer:  # noqa: S310  http
                    kept.with_suffix(".new").write_bytes(answer.read())
            except urllib.error.HTTPError as missing:
                missing.close()
                return self.answer(missing.code, b"")
            kept.with_suffix(".new").replace(kept)
        return self.answer(200, kept.read_bytes())

    def indexed(self, path: str) -> None:
        """PEP 503 over a folder: /simple/NAME/ lists, /simple/NAME/FILE gives."""
        _, _, name, file = path.split("/", 3)
        fits = [each for each in self.server.files.iterdir() if self.of(each.name) == name]
        if file:
            content = next((each.read_bytes() for each in fits if each.name == file), None)
            return self.answer(200, content) if content is not None else self.answer(404, b"")
        links = "".join(f'<a href="{each.name}">{each.name}</a>' for each in fits)
        return self.answer(200, links.encode(), Content_Type="text/html") if fits else self.answer(404, b"")

    @staticmethod
    def of(file: str) -> str:
        """The package of a wheel or a source archive, whose name may have hyphens, as an index calls it."""
        return parse_wheel_filename(file)[0] if file.endswith(".whl") else parse_sdist_filename(file)[0]
