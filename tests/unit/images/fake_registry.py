"""A registry in memory, of as much of the distribution API as is used; it may want a login, and notes what is asked."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
from contextlib import AbstractContextManager

from tests.serving import serving

SUBJECT = json.dumps({"schemaVersion": 2, "config": {"digest": "sha256:" + "c" * 64}}).encode()
PAIR = base64.b64encode(b"somebody:secret").decode()


class FakeRegistry(http.server.ThreadingHTTPServer):
    """Manifests by tag or digest with their media types, blobs by digest, and the requests that were answered."""

    def __init__(self, login: str = "") -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.login = login
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self.asked: list[str] = []

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def keep(self, tag: str, content: bytes, media_type: str) -> str:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.manifests[tag] = self.manifests[digest] = media_type, content
        return digest


def running(login: str = "") -> AbstractContextManager[FakeRegistry]:
    return serving(FakeRegistry(login))


class Handler(http.server.BaseHTTPRequestHandler):
    server: FakeRegistry
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one packet: else each waits 40 ms for the other side's acknowledgement

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def answer(self, code: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/token"):
            granted = self.headers.get("Authorization") == f"Basic {PAIR}"
            return self.answer(200 if granted else 401, b'{"token": "let-in"}')
        wanted = {"": None, "basic": f"Basic {PAIR}", "bearer": "Bearer let-in"}[self.server.login]
        if wanted and self.headers.get("Authorization") != wanted:
            realm = f'Bearer realm="http://{self.server.host}/token",service="fake",scope="repository:x:pull,push"'
            challenge = realm if self.server.login == "bearer" else 'Basic realm="fake"'
            return self.answer(401, b"who are you?", WWW_Authenticate=challenge)
        self.server.asked.append(f"{self.command} {self.path.split('/')[-2]}")
        return self.kept(body, self.path.rpartition("/")[2])

    def kept(self, body: bytes, name: str) -> None:
        server = self.server
        if self.command == "POST":
            return self.answer(202, Location=f"{self.path}1?_state=x")
        if self.command == "PUT" and "/uploads/" in self.path:
            server.blobs[self.path.partition("digest=")[2].replace("%3A", ":")] = body
            return self.answer(201)
        if self.command == "PUT":
            server.keep(name, body, self.headers["Content-Type"])
            return self.answer(201)
        if "/manifests/" in self.path and name in server.manifests:
            media_type, content = server.manifests[name]
            return self.answer(200, content, Content_Type=media_type)
        if "/blobs/" in self.path and name in server.blobs:
            return self.answer(200, server.blobs[name])
        return self.answer(404, b'{"errors": [{"code": "UNKNOWN"}]}')

    do_GET = do_HEAD = do_POST = do_PUT = handle_any  # noqa: N815  the names are http.server's
