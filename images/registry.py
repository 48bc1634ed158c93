"""A registry, asked by the distribution API: https://github.com/opencontainers/distribution-spec."""

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

from images.daemon import daemon
from images.errors import RegistryFailed

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
CERTIFICATES = Path("/etc/docker/certs.d")
TIMEOUT_S = 60
HUB, HUB_API = "docker.io", "registry-1.docker.io"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


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
        self.session = requests.Session()
        self.session.trust_env = not local  # no proxy leads back to this machine
        if (bundle := CERTIFICATES / self.host / "ca.crt").is_file():
            self.session.verify = str(bundle)

    @classmethod
    def of(cls, reference: str) -> tuple[Repository, str]:
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
        if answer.status_code == 404:
            return None
        found = Manifest(answer.content, answer.headers.get("Content-Type", OCI_MANIFEST))
        if ":" in tag and found.digest != tag:
            raise RegistryFailed(f"{self.name}@{tag}: the registry gave a manifest of digest {found.digest}")
        return found

    def blob(self, digest: str) -> bytes:
        """The content that a digest names."""
        content = self._ask("GET", f"blobs/{digest}").content
        if digest_of(content) != digest:
            raise RegistryFailed(f"{self.name}: blob {digest} came with other bytes")
        return content

    def put_blob(self, content: bytes, media_type: str) -> dict[str, Any]:
        """Upload where the registry lacks it; its descriptor."""
        digest = digest_of(content)
        if self._ask("HEAD", f"blobs/{digest}", also=(404,)).status_code == 404:
            started = self._ask("POST", "blobs/uploads/")
            place = urljoin(started.url, started.headers["Location"])
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

    def _ask(self, method: str, place: str, *, also: tuple[int, ...] = (), **more: Any) -> requests.Response:
        """One request, with a login where one is wanted; RegistryFailed for every other answer than asked for."""
        url = urljoin(self.url, place)
        try:
            answer = self.session.request(method, url, timeout=TIMEOUT_S, **more)
            if answer.status_code == 401 and self._login(answer.headers.get("WWW-Authenticate", "")):
                answer = self.session.request(method, url, timeout=TIMEOUT_S, **more)
        except requests.RequestException as silence:
            raise RegistryFailed(f"{self.host} does not answer: {silence}") from silence
        if not answer.ok and answer.status_code not in also:
            fix = f"; `docker login {self.host}` first" if answer.status_code in (401, 403) else ""
            raise RegistryFailed(f"{method} {url}: {answer.status_code} {answer.text[:300]}{fix}")
        return answer

    def _login(self, challenge: str) -> bool:
        """Answer a challenge with docker's own login for this registry, if there is one."""
        known = auth.load_config().resolve_authconfig(self.host) or {}
        pair = (known["username"], known["password"]) if known.get("username") else None
        if not challenge.lower().startswith("bearer "):
            self.session.auth = pair
            return pair is not None
        asked = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        wanted = {"service": asked.get("service", ""), "scope": asked.get("scope", "")}
        answer = self.session.get(asked["realm"], params=wanted, auth=pair, timeout=TIMEOUT_S)
        token = answer.json().get("token") or answer.json().get("access_token") if answer.ok else None
        self.session.headers["Authorization"] = f"Bearer {token}"
        return token is not None
