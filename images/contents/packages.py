"""Lists the packages of an image from its databases: dpkg's, Python's (every prefix), conda's.

A package is identified by its purl (https://github.com/package-url/purl-spec) and its folder, since an image may have
the same Python package several times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from urllib.parse import quote

from docker.models.images import Image
from packaging.utils import canonicalize_name

from images.contents import rootfs
from images.errors import ImageError

DEBIAN = re.compile(r"var/lib/dpkg/status(\.d/[^/]+)?")
PYTHON = re.compile(r"(.+)/[^/]+\.(dist-info/METADATA|egg-info(/PKG-INFO)?|egg/EGG-INFO/PKG-INFO)")
CONDA = re.compile(r"(.+)/conda-meta/[^/]+\.json")
OS_RELEASE = "usr/lib/os-release"
RPM = {
    f"{folder}/{name}"
    for folder in ("var/lib/rpm", "usr/lib/sysimage/rpm")
    for name in ("rpmdb.sqlite", "Packages", "Packages.db")
}


@dataclass(frozen=True, order=True)
class Package:
    """One installed package; ``licence`` is the SPDX expression in its metadata, or ''."""

    purl: str
    where: str
    name: str
    version: str
    licence: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.purl, self.where

    def __str__(self) -> str:
        return f"{self.name} {self.version} in /{self.where}"


def inside(image: Image) -> list[Package]:
    """Return every package of an image of the daemon, sorted."""
    return listed(rootfs.read(image, is_database))


def is_database(path: str) -> bool:
    """Whether a path of an image is a package database, or names the distribution."""
    if path.startswith("var/lib/dpkg/"):
        return bool(DEBIAN.fullmatch(path))
    if path.endswith((".json", "METADATA", "PKG-INFO", ".egg-info")):
        return bool(PYTHON.fullmatch(path) or CONDA.fullmatch(path))
    return path == OS_RELEASE or path in RPM


def listed(files: Mapping[str, bytes]) -> list[Package]:
    """Return the packages in database files, each once."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', files.get(OS_RELEASE, b"").decode(), re.MULTILINE))
    found: set[Package] = set()
    for path, content in files.items():
        if path in RPM and content:
            raise ImageError(
                f"the image has an RPM database, /{path}; packages are listed for dpkg, Python and conda only. "
                "Use a base on Debian or Ubuntu, like every variant of images/catalog.toml"
            )
        if DEBIAN.fullmatch(path):
            found.update(_debian_packages(path, content, release))
        elif python := PYTHON.fullmatch(path):
            found.update(_python_packages(python[1], content))
        elif conda := CONDA.fullmatch(path):
            found.update(_conda_packages(conda[1], content))
    return sorted(found)


def _debian_packages(path: str, status: bytes, release: Mapping[str, str]) -> Iterator[Package]:
    """Parse a status file of dpkg or of a distroless base; skip packages of which only the configuration is left."""
    for paragraph in status.decode("utf-8", "replace").split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
        if "Package" in fields and fields.get("Status", "installed").endswith("installed"):
            yield _debian_package(path, fields, release)


def _debian_package(path: str, fields: Mapping[str, str], release: Mapping[str, str]) -> Package:
    name, version, vendor = fields["Package"], fields["Version"], release.get("ID", "linux")
    distribution = quote(f"{vendor}-{release['VERSION_ID']}" if "VERSION_ID" in release else vendor)
    arch = f"arch={fields['Architecture']}&distro={distribution}"
    where = path if "status.d/" in path else path.rpartition("/")[0]
    return Package(f"pkg:deb/{vendor}/{quote(name, '')}@{quote(version, ':~')}?{arch}", where, name, version)


def _python_packages(where: str, metadata: bytes) -> Iterator[Package]:
    """Parse a METADATA or PKG-INFO; one without a name or a version is skipped, as pip does."""
    headers = HeaderParser().parsestr(metadata.decode("utf-8", "replace"))
    name, version = headers.get("Name"), headers.get("Version")
    if name and version:
        purl = f"pkg:pypi/{quote(canonicalize_name(name), '')}@{quote(version, '')}"
        yield Package(purl, where, name, version, headers.get("License-Expression", ""))


def _conda_packages(where: str, record: bytes) -> Iterator[Package]:
    facts = json.loads(record)
    name, version = facts["name"], facts["version"]
    purl = f"pkg:conda/{quote(name, '')}@{quote(version, '')}?build={quote(facts.get('build', ''), '')}"
    yield Package(purl, where, name, version, facts.get("license") or "")
