"""In-memory Docker daemon that describes images, over a socket or TCP, and records requests."""

from __future__ import annotations

import http.server
import json
import re
import socket
import socketserver
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

VERSION = {"Version": "20.10.24", "ApiVersion": "1.41", "Arch": "amd64"}


class Answers(http.server.BaseHTTPRequestHandler):
    """A request to a server with ``images`` (name or ID to its description) and ``requests``, the requests so far."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def address_string(self) -> str:
        return "a socket"

    def handle_any(self) -> None:
        parts = urlsplit(re.sub(r"^/v[\d.]+", "", self.path))  # docker-py names a version of the API
        server: Any = self.server
        server.requests.append(f"{self.command} {parts.path}")
        status, answer = self._answer(server.images, parts.path, parse_qs(parts.query))
        content = json.dumps(answer).encode() if answer is not None else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _answer(self, images: dict[str, dict[str, Any]], path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        plain: dict[str, Any] = {"/version": VERSION, "/_ping": "OK", "/info": {"DockerRootDir": "/var/lib/docker"}}
        if path in plain:
            return 200, plain[path]
        name, _, what = unquote(path).removeprefix("/images/").rpartition("/")
        if name == "broken":
            return 500, {"message": "the disk is on fire"}
        if name not in images:
            return 404, {"message": f"No such image: {name}"}
        if what == "tag":
            images[query["repo"][0]] = images[name]
            return 201, None
        return 200, [{"CreatedBy": "COPY"}, {"CreatedBy": "FROM"}] if what == "history" else images[name]

    do_GET = do_POST = handle_any  # noqa: N815  as http.server calls them


class OnSocket(socketserver.ThreadingUnixStreamServer):
    """The daemon on a Unix socket, docker's default."""

    daemon_threads = True

    def __init__(self, path: str, images: dict[str, dict[str, Any]]) -> None:
        super().__init__(path, Answers)
        self.images, self.requests = images, list[str]()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, _ = super().get_request()
        return connection, ("a socket", 0)


class OnTcp(http.server.ThreadingHTTPServer):
    """The daemon on a TCP port of this machine."""

    def __init__(self, images: dict[str, dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.images, self.requests = images, list[str]()
