"""In-memory registry: the part of the distribution API that is used, an optional login, and a record of requests.

It may also be hostile: send another realm, redirect clients, or pad its answers.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import ssl
from contextlib import AbstractContextManager
from pathlib import Path

from tests.support.images.serving import serving

SUBJECT = json.dumps({"schemaVersion": 2, "config": {"digest": "sha256:" + "c" * 64}}).encode()
TOKEN = b'{"token": "let-in"}'
PAIR = base64.b64encode(b"somebody:secret").decode()


class FakeRegistry(http.server.ThreadingHTTPServer):
    """Manifests by tag or digest with their media types, blobs by digest, and the requests that were answered.

    ``challenge`` replaces its own challenge. ``elsewhere`` is a registry to which it redirects requests, ``uploads``
    one that gets the blobs. An answer lists at most ``page`` tags. ``authorizations`` has every login that it
    received, with the path. With a ``certificate`` (PEM with its key) it speaks TLS.
    """

    def __init__(self, login: str = "", address: str = "127.0.0.1", certificate: Path | None = None) -> None:
        super().__init__((address, 0), Handler)
        self.address = address
        self.scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.login = login
        self.challenge = ""
        self.elsewhere = ""
        self.uploads = ""
        self.padding = b""
        self.page = 100
        self.authorizations: list[str] = []
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self.requests: list[str] = []

    @property
    def host(self) -> str:
        return f"{self.address}:{self.server_port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}"

    def keep(self, tag: str, content: bytes, media_type: str) -> str:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.manifests[tag] = self.manifests[digest] = media_type, content
        return digest


def running(
    login: str = "", address: str = "127.0.0.1", certificate: Path | None = None
) -> AbstractContextManager[FakeRegistry]:
    return serving(FakeRegistry(login, address, certificate))


class Handler(http.server.BaseHTTPRequestHandler):
    server: FakeRegistry
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one packet; otherwise each waits 40 ms for an acknowledgement

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def answer(self, code: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_in(self, required: str | None) -> bool:
        """Return whether the request has the required login; if not, answer with a challenge."""
        if not required or self.headers.get("Authorization") == required:
            return True
        own = f'Bearer realm="{self.server.url}/token",service="fake",scope="repository:x:pull,push"'
        challenge = self.server.challenge or (own if self.server.login == "bearer" else 'Basic realm="fake"')
        self.answer(401, b"who are you?", WWW_Authenticate=challenge)
        return False

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server = self.server
        if "Authorization" in self.headers:
            server.authorizations.append(f"{self.path.partition('?')[0]} {self.headers['Authorization']}")
        if self.path.startswith("/token"):
            granted = self.headers.get("Authorization") == f"Basic {PAIR}"
            return self.answer(200 if granted else 401, TOKEN + server.padding)
        if not self.log_in({"": None, "basic": f"Basic {PAIR}", "bearer": "Bearer let-in"}[server.login]):
            return None
        if self.path == "/v2/":
            return self.answer(200, b"{}")
        server.requests.append(f"{self.command} {self.path.split('/')[-2]}")
        if server.elsewhere and self.command in ("GET", "HEAD"):
            return self.answer(307, Location=f"{server.elsewhere}{self.path}")
        name = self.path.rpartition("/")[2]
        return self.list_tags(name.partition("last=")[2]) if "/tags/list" in self.path else self.kept(body, name)

    def kept(self, body: bytes, name: str) -> None:
        server = self.server
        if self.command == "POST":
            return self.answer(202, Location=f"{server.uploads}{self.path}1?_state=x")
        if self.command == "PUT" and "/uploads/" in self.path:
            server.blobs[self.path.partition("digest=")[2].replace("%3A", ":")] = body
            return self.answer(201)
        if self.command == "PUT":
            server.keep(name, body, self.headers["Content-Type"])
            return self.answer(201)
        if "/manifests/" in self.path and name in server.manifests:
            media_type, content = server.manifests[name]
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            return self.answer(200, content + server.padding, Content_Type=media_type, Docker_Content_Digest=digest)
        if "/blobs/" in self.path and name in server.blobs:
            return self.answer(200, server.blobs[name])
        return self.answer(404, b'{"errors": [{"code": "UNKNOWN"}]}')

    def list_tags(self, last: str) -> None:
        """Answer with a page of the tags after ``last``, and a link to the next one."""
        tags = [tag for tag in sorted(self.server.manifests) if not tag.startswith("sha256:") and tag > last]
        page = tags[: self.server.page]
        more = {"Link": f'<{self.path.partition("?")[0]}?last={page[-1]}>; rel="next"'} if len(tags) > len(page) else {}
        self.answer(200 if tags else 404, json.dumps({"tags": page}).encode(), **more)

    do_GET = do_HEAD = do_POST = do_PUT = handle_any  # noqa: N815  as http.server calls them
