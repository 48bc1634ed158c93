"""Site settings of one build, passed as build secrets so that no layer contains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from docker import auth
from requests.utils import should_bypass_proxies

from images.builds import site_settings
from images.catalog.variant import Variant
from images.errors import SiteError

PYPI = "https://pypi.org/simple"
LIBRARY = "library/"  # Docker Hub's owner of images without an owner


@dataclass(frozen=True)
class Site:
    """The settings of images/builds/site_settings.py, with the passwords in their URLs."""

    base_mirror: str | None = None
    wheelhouse: Path | None = None
    pip_index: str | None = None
    apt_mirror: str | None = None
    ca: Path | None = None
    proxy: str | None = None
    no_proxy: str = ""
    offline: bool = False  # the context has all downloads: images/builds/bundle.py

    @classmethod
    def read(cls, site: str = "", environment: Mapping[str, str] | None = None, /, **flags: str) -> Site:
        """Read flags, else the environment, else the site file; SiteError names a setting that is not valid."""
        settings = site_settings.settings(site, environment, **flags)
        site_settings.refuse_missing(settings)
        found = {name: each.value for name, each in settings.items()}
        paths = {name: Path(found[name]) if name in found else None for name in ("wheelhouse", "ca")}
        return cls(
            base_mirror=found.get("base_mirror"),
            wheelhouse=paths["wheelhouse"],
            ca=paths["ca"],
            pip_index=_with_password("pip_index", found),
            apt_mirror=_with_password("apt_mirror", found),
            proxy=_with_password("proxy", found),
            no_proxy=found.get("no_proxy", ""),
        )

    def mirrored(self, reference: str) -> str:
        """Return the reference of an image in the site's mirror, if it has one."""
        if not self.base_mirror:
            return reference
        registry, path = auth.resolve_repository_name(reference)
        owner = LIBRARY if registry == auth.INDEX_NAME and "/" not in path else ""
        return f"{self.base_mirror.replace('{registry}', registry).rstrip('/')}/{owner}{path}"

    def proxy_to(self, url: str) -> str | None:
        """Return the proxy for ``url``, or None."""
        bypassed = not self.proxy or should_bypass_proxies(url, self.no_proxy or None)
        return None if bypassed else self.proxy

    def pip_environment(self) -> dict[str, str]:
        """Return the environment for pip on this host, which keeps passwords out of its arguments."""
        proxy = self.proxy_to(self.pip_index or PYPI)
        variables = {"PIP_CERT": self.ca, "PIP_INDEX_URL": self.pip_index, "PIP_PROXY": proxy}
        return {name: str(value) for name, value in variables.items() if value}

    def secrets(self, variant: Variant, folder: Path) -> list[str]:
        """Write the configuration of pip, apt and git into ``folder``; return the flags that mount it as secrets."""
        files = {"ca": self.ca} if self.ca else {}
        if sources := self._sources(variant):
            files["sources"] = _write(folder / "sources", sources)
        files["pip"] = _write(folder / "pip", self._pip())
        files["apt"] = _write(folder / "apt", self._apt(variant))
        files["git"] = _write(folder / "git", self._git(variant))
        return [word for name, path in files.items() for word in ("--secret", f"id={name},src={path}")]

    def git_environment(self, repository: str) -> dict[str, str]:
        """Return the environment for git on this host to reach ``repository``."""
        variables = {"GIT_SSL_CAINFO": self.ca, "https_proxy": self.proxy_to(repository)}
        return {name: str(value) for name, value in variables.items() if value}

    def _sources(self, variant: Variant) -> list[str]:
        """apt's sources, if they replace those of the base."""
        if self.offline:
            # Copied like a download, so that it is checked: dockerfiles/apt.sh
            return ["deb [trusted=yes] copy:/debs ./"]
        return [f"deb {self.apt_mirror} {suite}" for suite in variant.apt_suites] if self.apt_mirror else []

    def _pip(self) -> list[str]:
        options = {"cert": self.ca and "/run/secrets/ca", "index-url": self.pip_index}
        if self.pip_index and self.pip_index.startswith("http://"):  # pip ignores such an index unless it is trusted
            options["trusted-host"] = self.pip_index.partition("://")[2].partition("/")[0].rpartition("@")[2]
        options["proxy"] = self.proxy_to(self.pip_index or PYPI)
        if self.offline:
            options |= {"no-index": "true", "find-links": "/wheelhouse"}
        return ["[global]", "disable-pip-version-check = true", *(f"{k} = {v}" for k, v in options.items() if v)]

    def _apt(self, variant: Variant) -> list[str]:
        options = {"APT::Keep-Downloaded-Packages": "true", "Acquire::Retries": "3"}
        if self.ca:
            options["Acquire::https::CAInfo"] = "/run/secrets/ca"
        if self._sources(variant):
            options |= {"Dir::Etc::SourceList": "/run/secrets/sources", "Dir::Etc::SourceParts": "-"}
        if proxy := self.proxy_to(self.apt_mirror or variant.apt_mirror):
            options |= {"Acquire::http::Proxy": proxy, "Acquire::https::Proxy": proxy}
        return [f'{name} "{value}";' for name, value in options.items()]

    def _git(self, variant: Variant) -> list[str]:
        lines = ["[http]", 'sslCAInfo = "/run/secrets/ca"'] if self.ca else []
        for repository in {new.repository for new in variant.replaces.values()}:
            if proxy := self.proxy_to(repository):
                lines += [f'[http "{repository}"]', f'proxy = "{proxy}"']
        for name, new in variant.replaces.items() if self.offline else ():
            lines += [f'[url "file:///git/{name}.git"]', f'insteadOf = "{new.repository}"']
        return lines


def _with_password(name: str, found: Mapping[str, str]) -> str | None:
    """Return the URL of a key with the password from its password file."""
    url, file = found.get(name), found.get(f"{name}_password_file")
    if not url or not file:
        return url
    parts = urlsplit(url)
    if not parts.username:
        raise SiteError(f"{name}_password_file is {file}, but {name} has no user: write {parts.scheme}://USER@HOST…")
    password = Path(file).read_text(encoding="utf-8").strip()
    return parts._replace(netloc=f"{parts.username}:{quote(password, '')}@{parts.netloc.rpartition('@')[2]}").geturl()


def _write(path: Path, lines: Sequence[str]) -> Path:
    path.touch(mode=0o600)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
