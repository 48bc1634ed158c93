"""Client of the distribution API: https://github.com/opencontainers/distribution-spec."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from docker import auth
from docker.utils import parse_repository_tag
from requests.auth import AuthBase, HTTPBasicAuth

from images.engine.daemon import daemon
from images.errors import RegistryFailed

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
CERTIFICATES = Path("/etc/docker/certs.d")
TIMEOUT_S = 60
LIMIT = 4 << 20  # bytes of a manifest, a token or an error; registries take no larger manifest
BLOB_LIMIT = 256 << 20  # of a statement or a signature
CHUNK = 1 << 16
REDIRECTS = 5
HUB, HUB_API = "docker.io", "registry-1.docker.io"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True)
class Answer:
    """What was answered, bounded, and by which address."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str


@dataclass(frozen=True)
class Manifest:
    """What a registry keeps under a tag or a digest."""

    content: bytes
    media_type: str

    @property
    def digest(self) -> str:
        return digest_of(self.content)

    @property
    def parts(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self.content))
        except (ValueError, TypeError) as broken:
            raise RegistryFailed(f"{self.digest} is no manifest: {broken}") from broken

    @property
    def descriptor(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.content)}


class Repository:
    """One name in a registry, reached as the engine would: its logins, its CAs, plain http where it uses that."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.host, self.path = auth.resolve_repository_name(name)
        secure = daemon().info()["RegistryConfig"]["IndexConfigs"].get(self.host, {}).get("Secure", True)
        local = urlsplit(f"//{self.host}").hostname in ("localhost", "127.0.0.1", "::1")
        scheme = "https" if secure and not local else "http"
        self.url = f"{scheme}://{HUB_API if self.host == HUB else self.host}/v2/{self.path}/"
        self.login: AuthBase | None = None  # for the registry's own address alone
        self.session = requests.Session()
        self.session.trust_env = not local  # no proxy leads back to this machine
        self.bundle = _bundle(self.host)  # of its token service and its storage as well, where they have none

    @classmethod
    def parse(cls, reference: str) -> tuple[Repository, str]:
        """The repository of ``NAME:TAG`` or ``NAME@DIGEST``, and the tag or digest."""
        name, tag = parse_repository_tag(reference)
        return cls(name), tag or "latest"

    def __enter__(self) -> Repository:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()

    def manifest(self, tag: str) -> Manifest | None:
        """What a tag or digest names, or nothing."""
        accept = ", ".join((OCI_MANIFEST, DOCKER_MANIFEST, *INDEXES))
        answer = self._ask("GET", f"manifests/{tag}", headers={"Accept": accept}, also=(404,))
        if answer.status == 404:
            return None
        found = Manifest(answer.content, answer.headers.get("Content-Type", OCI_MANIFEST))
        if ":" in tag and found.digest != tag:
            raise RegistryFailed(f"{self.name}@{tag}: the registry gave a manifest of digest {found.digest}")
        return found

    def blob(self, digest: str) -> bytes:
        """The content that a digest names."""
        content = self._ask("GET", f"blobs/{digest}", limit=BLOB_LIMIT).content
        if digest_of(content) != digest:
            raise RegistryFailed(f"{self.name}: blob {digest} came with other bytes")
        return content

    def put_blob(self, content: bytes, media_type: str) -> dict[str, Any]:
        """Upload where the registry lacks it; its descriptor."""
        digest = digest_of(content)
        if self._ask("HEAD", f"blobs/{digest}", also=(404,)).status == 404:
            started = self._ask("POST", "blobs/uploads/")
            place = urljoin(started.url, started.headers.get("Location", ""))
            place += ("&" if "?" in place else "?") + f"digest={digest}"
            self._ask("PUT", place, data=content, headers={"Content-Type": "application/octet-stream"})
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def put_manifest(self, tag: str, manifest: Mapping[str, Any]) -> Manifest:
        """Keep a manifest under a tag; nothing is sent where it is there already."""
        new = Manifest(json.dumps(manifest, indent=1, sort_keys=True).encode(), manifest["mediaType"])
        self._put(tag, new)
        return new

    def tag(self, digest: str, tag: str) -> str:
        """Have a tag name what is here by ``digest``, which is returned; nothing is sent where it does already."""
        found = self.manifest(digest)
        if found is None:
            raise RegistryFailed(f"{self.name} has no {digest} to name {tag}")
        self._put(tag, found)
        return found.digest

    def _put(self, tag: str, manifest: Manifest) -> None:
        present = self.manifest(tag)
        if not present or present.digest != manifest.digest:
            self._ask("PUT", f"manifests/{tag}", data=manifest.content, headers={"Content-Type": manifest.media_type})

    def _ask(self, method: str, place: str, *, also: tuple[int, ...] = (), limit: int = LIMIT, **more: Any) -> Answer:
        """One request, with a login where one is wanted; RegistryFailed for every other answer than asked for."""
        try:
            answer = self._answer(method, urljoin(self.url, place), limit, **more)
        except ValueError as broken:
            raise RegistryFailed(f"{self.host} names an address that is none: {broken}") from broken
        if not 200 <= answer.status < 300 and answer.status not in also:
            refused = answer.status in (401, 403) and self._is_own(answer.url)
            fix = f"; `docker login {self.host}` first" if refused else ""
            words = answer.content[:300].decode(errors="replace")
            raise RegistryFailed(f"{method} {answer.url}: {answer.status} {words}{fix}")
        return answer

    def _answer(self, method: str, url: str, limit: int, **more: Any) -> Answer:
        """The answer behind a login and redirects; only a challenge of the registry itself is answered."""
        answer = self._send(method, url, limit, **more)
        if answer.status == 401 and self._is_own(url) and self._log_in(answer):
            answer = self._send(method, url, limit, **more)
        for _ in range(REDIRECTS if method in ("GET", "HEAD") else 0):
            if answer.status not in (301, 302, 303, 307, 308) or not answer.headers.get("Location"):
                break
            answer = self._send(method, urljoin(answer.url, answer.headers["Location"]), limit, **more)
        return answer

    def _send(self, method: str, url: str, limit: int, **more: Any) -> Answer:
        """Ask once, without following a redirect; at most ``limit`` bytes are taken."""
        if self.url.startswith("https:") and not url.startswith("https:"):
            raise RegistryFailed(f"{self.host} is asked over https and leads to {url}; nothing was asked there")
        login = self.login if self._is_own(url) and "auth" not in more else None
        # The CAs go with each request: a REQUESTS_CA_BUNDLE would take the place of the session's.
        verify = _bundle(urlsplit(url).netloc) or self.bundle or True
        more = {"auth": login or _unchanged, "verify": verify, **more}
        try:
            with self.session.request(
                method, url, timeout=TIMEOUT_S, stream=True, allow_redirects=False, **more
            ) as answer:
                content = _bounded(answer, limit)
                return Answer(answer.status_code, answer.headers, content, url)
        except requests.RequestException as silence:
            raise RegistryFailed(f"{urlsplit(url).netloc} does not answer: {silence}") from silence

    def _is_own(self, url: str) -> bool:
        """Whether it leads to the registry itself, rather than to a storage that it names."""
        return urlsplit(url)[:2] == urlsplit(self.url)[:2]

    def _log_in(self, answer: Answer) -> bool:
        """Answer the registry's challenge with docker's own login for it, if there is one.

        The login goes to the registry, or to the token service that it names: over https, on whatever host; over http
        only where the registry itself is asked over http, and only on its own host.
        """
        known = auth.load_config().resolve_authconfig(self.host) or {}
        pair = (known["username"], known["password"]) if known.get("username") else None
        kind, _, words = answer.headers.get("WWW-Authenticate", "").partition(" ")
        if kind.lower() != "bearer":
            self.login = HTTPBasicAuth(*pair) if pair else None
            return pair is not None
        asked = dict(re.findall(r'(\w+)="([^"]*)"', words))
        realm = urlsplit(asked.get("realm", ""))
        own = self.url.startswith("http:") and realm.scheme == "http" and realm.hostname == urlsplit(self.url).hostname
        if not (realm.scheme == "https" and realm.hostname) and not own:
            raise RegistryFailed(
                f"{self.host} wants a token of {asked.get('realm', 'nobody')!r}, which is no address over https; "
                "no login was sent. Tell the registry's operators"
            )
        wanted = {"service": asked.get("service", ""), "scope": asked.get("scope", "")}
        given = self._send(
            "GET", asked["realm"], LIMIT, params=wanted, auth=HTTPBasicAuth(*pair) if pair else _unchanged
        )
        self.login = _Token(_token(given)) if given.status == 200 else None
        return self.login is not None


class _Token(AuthBase):
    """A token of a token service; `requests` takes nothing else from a .netrc where it is given one."""

    def __init__(self, token: str) -> None:
        self.token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self.token}"
        return request


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """No login, and none from a .netrc either."""
    return request


def _token(answer: Answer) -> str:
    try:
        told = json.loads(answer.content)
        token = told.get("token") or told["access_token"]
    except (ValueError, AttributeError, KeyError) as broken:
        raise RegistryFailed(f"{answer.url} gave no token: {broken!r}") from broken
    if not isinstance(token, str) or not re.fullmatch("[!-~]+", token):
        raise RegistryFailed(f"{answer.url} gave a token that is no word")
    return token


def _bounded(answer: requests.Response, limit: int) -> bytes:
    """The body, of ``limit`` bytes at most."""
    content = bytearray()
    for chunk in answer.iter_content(CHUNK):
        content += chunk
        if len(content) > limit:
            raise RegistryFailed(f"{answer.url} gives more than {limit} bytes; the rest was not taken")
    return bytes(content)


def _bundle(netloc: str) -> str | None:
    """The CAs that docker takes for a registry, where it has some of its own."""
    path = CERTIFICATES / netloc / "ca.crt"
    return str(path) if path.is_file() else None
