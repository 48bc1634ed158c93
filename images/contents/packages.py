"""Lists the packages of an image from its databases: dpkg's, Python's (every prefix), conda's.

A package is told by its purl (https://github.com/package-url/purl-spec) and by the folder in which it lies, since a
Python package may be there more than once.
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
    """One installed package; ``licence`` is the SPDX expression that its own metadata gives, or nothing."""

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
    """Every package of an image that this machine has, sorted."""
    return listed(rootfs.read(image, is_database))


def is_database(path: str) -> bool:
    """Whether a path of an image tells of packages, or of the distribution whose they are."""
    if path.startswith("var/lib/dpkg/"):
        return bool(DEBIAN.fullmatch(path))
    if path.endswith((".json", "METADATA", "PKG-INFO", ".egg-info")):
        return bool(PYTHON.fullmatch(path) or CONDA.fullmatch(path))
    return path == OS_RELEASE or path in RPM


def listed(files: Mapping[str, bytes]) -> list[Package]:
    """The packages that database files tell of, each once."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', files.get(OS_RELEASE, b"").decode(), re.MULTILINE))
    found: set[Package] = set()
    for path, content in files.items():
        if path in RPM and content:
            raise ImageError(
                f"the image has an RPM database, /{path}; packages are listed for dpkg, Python and conda only. "
                "Use a base on Debian or Ubuntu, as every variant of images/catalog.toml has"
            )
        if DEBIAN.fullmatch(path):
            found.update(_of_debian(path, content, release))
        elif python := PYTHON.fullmatch(path):
            found.update(_of_python(python[1], content))
        elif conda := CONDA.fullmatch(path):
            found.update(_of_conda(conda[1], content))
    return sorted(found)


def _of_debian(path: str, status: bytes, release: Mapping[str, str]) -> Iterator[Package]:
    """dpkg's status file, or one of a distroless base's, less what was removed but for its configuration."""
    for paragraph in status.decode("utf-8", "replace").split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
        if "Package" in fields and fields.get("Status", "installed").endswith("installed"):
            yield _package_of_dpkg(path, fields, release)


def _package_of_dpkg(path: str, fields: Mapping[str, str], release: Mapping[str, str]) -> Package:
    name, version, of = fields["Package"], fields["Version"], release.get("ID", "linux")
    distribution = quote(f"{of}-{release['VERSION_ID']}" if "VERSION_ID" in release else of)
    arch = f"arch={fields['Architecture']}&distro={distribution}"
    where = path if "status.d/" in path else path.rpartition("/")[0]
    return Package(f"pkg:deb/{of}/{quote(name, '')}@{quote(version, ':~')}?{arch}", where, name, version)


def _of_python(where: str, metadata: bytes) -> Iterator[Package]:
    """A METADATA or PKG-INFO; one without a name or a version is nothing that pip would list."""
    told = HeaderParser().parsestr(metadata.decode("utf-8", "replace"))
    name, version = told.get("Name"), told.get("Version")
    if name and version:
        purl = f"pkg:pypi/{quote(canonicalize_name(name), '')}@{quote(version, '')}"
        yield Package(purl, where, name, version, told.get("License-Expression", ""))


def _of_conda(where: str, record: bytes) -> Iterator[Package]:
    told = json.loads(record)
    purl = f"pkg:conda/{quote(told['name'], '')}@{quote(told['version'], '')}?build={quote(told.get('build', ''), '')}"
    yield Package(purl, where, told["name"], told["version"], told.get("license") or "")
