"""Package index (PEP 503) and caching mirror of Debian, served from one port of this machine."""

from __future__ import annotations

import http.server
import socketserver
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from docker import DockerClient
from packaging.utils import parse_sdist_filename, parse_wheel_filename

DEBIAN = "http://deb.debian.org"
DEBIAN_PATH = "/debian/"
S = TypeVar("S", bound=socketserver.BaseServer)


@contextmanager
def serving(server: S) -> Iterator[S]:
    """Serve in a thread, and close the server in the end."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def bridge_address(daemon: DockerClient) -> str:
    """Address of this machine on the engine's default bridge, which builds and containers reach.

    An engine that has just made the bridge names no gateway before its next start (Docker 20.10): the bridge has the
    first address of the subnet.
    """
    pool = daemon.networks.get("bridge").attrs["IPAM"]["Config"][0]
    return str(pool.get("Gateway") or next(ip_network(pool["Subnet"]).hosts()))


def package_name(file: str) -> str:
    """Name of the package that a wheel or a source archive is of, as an index normalizes it."""
    return parse_wheel_filename(file)[0] if file.endswith(".whl") else parse_sdist_filename(file)[0]


class IndexServer(http.server.ThreadingHTTPServer):
    """Serves the packages in ``files`` below /simple/, and Debian below /debian/ with a cache in ``cache``."""

    daemon_threads = True

    def __init__(self, address: str, files: Path, cache: Path, handler: type[IndexHandler] | None = None) -> None:
        super().__init__((address, 0), handler or IndexHandler)
        self.host = f"{address}:{self.server_port}"
        self.files, self.cache = files, cache


class IndexHandler(http.server.BaseHTTPRequestHandler):
    """A request to an IndexServer; a proxied one, which names host and path, is answered by its path."""

    server: IndexServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path.startswith(DEBIAN_PATH):
            self.send_mirrored(path)
        else:
            self.send_indexed(path)

    def respond(self, code: int, content: bytes, **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def send_mirrored(self, path: str) -> None:
        """Send a file of Debian's archive, downloading it on the first request."""
        cached = self.server.cache / path.strip("/").replace("/", "_")
        if not cached.exists():
            try:
                with urllib.request.urlopen(DEBIAN + path, timeout=60) as answer:  # noqa: S310  http
                    cached.with_suffix(".new").write_bytes(answer.read())
            except urllib.error.HTTPError as missing:
                missing.close()
                return self.respond(missing.code, b"")
            cached.with_suffix(".new").replace(cached)
        return self.respond(200, cached.read_bytes())

    def send_indexed(self, path: str) -> None:
        """Send the list of a package's files for /simple/NAME/, a file for /simple/NAME/FILE."""
        _, _, name, file = path.split("/", 3)
        files = {each.name: each for each in self.server.files.iterdir() if package_name(each.name) == name}
        if file in files:
            return self.respond(200, files[file].read_bytes())
        if file or not files:
            return self.respond(404, b"")
        links = "".join(f'<a href="{each}">{each}</a>' for each in files)
        return self.respond(200, links.encode(), Content_Type="text/html")
