"""Client of the distribution API: https://github.com/opencontainers/distribution-spec.

Not oras (oras-py 0.2.43, measured): it sends docker's login to any token service over plain http and its token to any
upload host, verifies no digest, has neither a timeout nor a size limit, and retries for 131 s without a message.
"""

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
from images.errors import AccessDenied, RegistryFailed

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
CERTIFICATES = Path("/etc/docker/certs.d")
TIMEOUT_S = 60
LIMIT = 4 << 20  # bytes of a manifest, a token or an error; registries accept no larger manifest
BLOB_LIMIT = 256 << 20  # bytes of a statement or a signature
CHUNK = 1 << 16
REDIRECTS = 5
PAGES = 1000  # of a list of tags
HUB, HUB_API = "docker.io", "registry-1.docker.io"


def split_reference(reference: str) -> tuple[str, str]:
    """Split ``NAME:TAG`` or ``NAME@DIGEST`` into the name and the tag or digest; ``latest`` without one."""
    name, tag = parse_repository_tag(reference)
    return name, tag or "latest"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True)
class Response:
    """A response with its body, which was read up to a limit, and the URL that sent it."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str


@dataclass(frozen=True)
class Manifest:
    """The manifest of a tag or a digest, byte for byte."""

    content: bytes
    media_type: str

    @property
    def digest(self) -> str:
        return digest_of(self.content)

    @property
    def parsed(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self.content))
        except (ValueError, TypeError) as error:
            raise RegistryFailed(f"{self.digest} is not a valid manifest: {error}") from error

    @property
    def descriptor(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.content)}


class Authorization(AuthBase):
    """An Authorization header, or none; with an ``auth`` object `requests` reads no .netrc."""

    def __init__(self, header: str = "") -> None:
        self.header = header

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self.header:
            request.headers["Authorization"] = self.header
        return request


NO_LOGIN = Authorization()


class Repository:
    """One repository of a registry, with the Docker engine's settings: logins, CA certificates, plain http.

    If ``anonymous``, docker's login is not used.
    """

    def __init__(self, name: str, *, anonymous: bool = False) -> None:
        self.name, self.anonymous = name, anonymous
        self.host, self.path = auth.resolve_repository_name(name)
        secure = daemon().info()["RegistryConfig"]["IndexConfigs"].get(self.host, {}).get("Secure", True)
        local = urlsplit(f"//{self.host}").hostname in ("localhost", "127.0.0.1", "::1")
        scheme = "https" if secure and not local else "http"
        self.url = f"{scheme}://{HUB_API if self.host == HUB else self.host}/v2/{self.path}/"
        self.login: AuthBase = NO_LOGIN  # sent to the registry's own address only
        self.session = requests.Session()
        self.session.trust_env = not local  # no proxy leads back to this machine
        self.ca_bundle = _ca_bundle(self.host)  # also for its token service and storage, unless they have their own

    @classmethod
    def parse(cls, reference: str) -> tuple[Repository, str]:
        """Return the repository of ``NAME:TAG`` or ``NAME@DIGEST``, and the tag or digest."""
        name, tag = split_reference(reference)
        return cls(name), tag

    def __enter__(self) -> Repository:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()

    def manifest(self, tag: str) -> Manifest | None:
        """Return the manifest of a tag or digest, or None if the registry has none; a digest is verified."""
        accept = ", ".join((OCI_MANIFEST, DOCKER_MANIFEST, *INDEXES))
        response = self._request("GET", f"manifests/{tag}", headers={"Accept": accept}, allowed=(404,))
        if response.status == 404:
            return None
        manifest = Manifest(response.content, response.headers.get("Content-Type", OCI_MANIFEST))
        if ":" in tag and manifest.digest != tag:
            raise RegistryFailed(f"{self.name}@{tag}: the registry sent a manifest with digest {manifest.digest}")
        return manifest

    def image_manifest(self, tag: str) -> Manifest | None:
        """Return the manifest of a tag's image, of the first image if the tag has an index."""
        manifest = self.manifest(tag)
        if manifest and manifest.media_type in INDEXES:
            return self.manifest(manifest.parsed["manifests"][0]["digest"])
        return manifest

    def tags(self) -> list[str]:
        """Return all tags; none if the repository does not exist yet."""
        found, url = list[str](), "tags/list"
        for _ in range(PAGES):
            response = self._request("GET", url, allowed=(404,))
            if response.status == 404:
                return []
            found += Manifest(response.content, "").parsed.get("tags") or []
            following = re.match(r'<([^>]+)>;\s*rel="?next"?', response.headers.get("Link", ""))
            if not following:
                return found
            url = urljoin(response.url, following[1])
        raise RegistryFailed(f"{self.name} has more than {PAGES} pages of tags; the rest was not read")

    def blob(self, digest: str) -> bytes:
        """Return the blob with this digest, which is verified."""
        content = self._request("GET", f"blobs/{digest}", limit=BLOB_LIMIT).content
        if digest_of(content) != digest:
            raise RegistryFailed(f"{self.name}: the registry sent other bytes for blob {digest}")
        return content

    def put_blob(self, content: bytes, media_type: str) -> dict[str, Any]:
        """Upload a blob unless the registry has it, and return its descriptor."""
        digest = digest_of(content)
        if self._request("HEAD", f"blobs/{digest}", allowed=(404,)).status == 404:
            started = self._request("POST", "blobs/uploads/")
            url = urljoin(started.url, started.headers.get("Location", ""))
            url += ("&" if "?" in url else "?") + f"digest={digest}"
            self._request("PUT", url, data=content, headers={"Content-Type": "application/octet-stream"})
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def put_manifest(self, tag: str, manifest: Mapping[str, Any]) -> Manifest:
        """Upload a manifest under a tag unless the tag already has it."""
        new = Manifest(json.dumps(manifest, indent=1, sort_keys=True).encode(), manifest["mediaType"])
        self._put(tag, new)
        return new

    def tag(self, digest: str, tag: str) -> str:
        """Tag the manifest with this digest, unless the tag already points to it, and return the digest."""
        manifest = self.manifest(digest)
        if manifest is None:
            raise RegistryFailed(f"{self.name} has no {digest}, so {tag} was not set")
        self._put(tag, manifest)
        return manifest.digest

    def _put(self, tag: str, manifest: Manifest) -> None:
        present = self.manifest(tag)
        if not present or present.digest != manifest.digest:
            headers = {"Content-Type": manifest.media_type}
            self._request("PUT", f"manifests/{tag}", data=manifest.content, headers=headers)

    def _request(
        self, method: str, path: str, *, allowed: tuple[int, ...] = (), limit: int = LIMIT, **options: Any
    ) -> Response:
        """Send a request; raise RegistryFailed unless the status is 2xx or one of ``allowed``."""
        try:
            response = self._send_with_login(method, urljoin(self.url, path), limit, **options)
        except ValueError as error:
            raise RegistryFailed(f"{self.host} sent an invalid URL: {error}") from error
        if not 200 <= response.status < 300 and response.status not in allowed:
            refused = response.status in (401, 403) and self._is_registry(response.url)
            fix = f"; `docker login {self.host}` first" if refused else ""
            text = response.content[:300].decode(errors="replace")
            failure = AccessDenied if refused else RegistryFailed
            raise failure(f"{method} {response.url}: {response.status} {text}{fix}")
        return response

    def _send_with_login(self, method: str, url: str, limit: int, **options: Any) -> Response:
        """Send a request, log in if the registry itself demands it, and follow redirects of GET and HEAD."""
        response = self._send(method, url, limit, **options)
        if response.status == 401 and self._is_registry(url) and self._log_in(response):
            response = self._send(method, url, limit, **options)
        for _ in range(REDIRECTS if method in ("GET", "HEAD") else 0):
            if response.status not in (301, 302, 303, 307, 308) or not response.headers.get("Location"):
                break
            response = self._send(method, urljoin(response.url, response.headers["Location"]), limit, **options)
        return response

    def _send(self, method: str, url: str, limit: int, **options: Any) -> Response:
        """Send one request without following a redirect, and read at most ``limit`` bytes of the body."""
        if self.url.startswith("https:") and not url.startswith("https:"):
            raise RegistryFailed(f"{self.host} uses https and points to {url}; no request was sent to it")
        # A CA bundle goes with each request: REQUESTS_CA_BUNDLE would override one of the session.
        verify = _ca_bundle(urlsplit(url).netloc) or self.ca_bundle or True
        options = {"auth": self.login if self._is_registry(url) else NO_LOGIN, "verify": verify, **options}
        try:
            with self.session.request(
                method, url, timeout=TIMEOUT_S, stream=True, allow_redirects=False, **options
            ) as response:
                content = _read_bounded(response, limit)
                return Response(response.status_code, response.headers, content, url)
        except requests.RequestException as error:
            raise RegistryFailed(f"{urlsplit(url).netloc} does not answer: {error}") from error

    def _is_registry(self, url: str) -> bool:
        """Whether a URL points to the registry itself, not to a storage that it redirects to."""
        return urlsplit(url)[:2] == urlsplit(self.url)[:2]

    def _log_in(self, response: Response) -> bool:
        """Answer the registry's challenge with docker's login for it; return whether a request may be sent again.

        The login is sent to the registry, or to the token service that it names: over https on any host, over http
        only if the registry itself uses http, and only on its own host.
        """
        credentials = {} if self.anonymous else auth.load_config().resolve_authconfig(self.host) or {}
        login: AuthBase = NO_LOGIN
        if credentials.get("username"):
            login = HTTPBasicAuth(credentials["username"], credentials["password"])
        scheme, _, parameters = response.headers.get("WWW-Authenticate", "").partition(" ")
        if scheme.lower() != "bearer":
            self.login = login
            return login is not NO_LOGIN
        challenge = dict(re.findall(r'(\w+)="([^"]*)"', parameters))
        realm = urlsplit(challenge.get("realm", ""))
        own = self.url.startswith("http:") and realm.scheme == "http" and realm.hostname == urlsplit(self.url).hostname
        if not (realm.scheme == "https" and realm.hostname) and not own:
            raise RegistryFailed(
                f"{self.host} names {challenge.get('realm', '')!r} as its token service, which is not an https URL; "
                "no login was sent. Report this to the registry's operators"
            )
        query = {"service": challenge.get("service", ""), "scope": challenge.get("scope", "")}
        granted = self._send("GET", challenge["realm"], LIMIT, params=query, auth=login)
        self.login = Authorization(f"Bearer {_token(granted)}") if granted.status == 200 else NO_LOGIN
        return granted.status == 200


def _token(response: Response) -> str:
    try:
        document = json.loads(response.content)
        token = document.get("token") or document["access_token"]
    except (ValueError, AttributeError, KeyError) as error:
        raise RegistryFailed(f"{response.url} sent no token: {error!r}") from error
    if not isinstance(token, str) or not re.fullmatch("[!-~]+", token):
        raise RegistryFailed(f"{response.url} sent a token with characters that no header may have")
    return token


def _read_bounded(response: requests.Response, limit: int) -> bytes:
    """Return the body; raise RegistryFailed if it has more than ``limit`` bytes."""
    content = bytearray()
    for chunk in response.iter_content(CHUNK):
        content += chunk
        if len(content) > limit:
            raise RegistryFailed(f"{response.url} sends more than {limit} bytes; the rest was not read")
    return bytes(content)


def _ca_bundle(netloc: str) -> str | None:
    """The CA file that docker has for a registry, if any."""
    path = CERTIFICATES / netloc / "ca.crt"
    return str(path) if path.is_file() else None
