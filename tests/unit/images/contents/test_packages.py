"""Packages of an image, read from its databases."""

from __future__ import annotations

import pytest

from images.contents import packages
from images.errors import ImageError

# From a Debian 12 and a distroless image; cut.
STATUS = b"""Package: libstdc++6
Status: install ok installed
Architecture: amd64
Multi-Arch: same
Version: 12.2.0-14+deb12u1
Description: GNU Standard C++ Library v3
 Package: not-this

Package: tini
Status: deinstall ok config-files
Architecture: amd64
Version: 0.19.0-1

Package: login
Status: hold ok installed
Architecture: amd64
Version: 1:4.13+dfsg1-1
"""
RELEASE = b'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n'
SITE = "opt/venv/lib/python3.11/site-packages"


def purls(files: dict[str, bytes]) -> list[str]:
    return [each.purl for each in packages.listed(files)]


def metadata(name: str, version: str, more: str = "") -> bytes:
    return f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{more}\nA text.\nName: not-this\n".encode()


def test_debian_packages_that_are_installed_are_listed() -> None:
    assert purls({"var/lib/dpkg/status": STATUS, packages.OS_RELEASE: RELEASE}) == [
        "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14%2Bdeb12u1?arch=amd64&distro=debian-12",
        "pkg:deb/debian/login@1:4.13%2Bdfsg1-1?arch=amd64&distro=debian-12",
    ]


def test_a_distroless_base_has_one_file_per_package() -> None:
    status = b"Package: tzdata\nVersion: 2026a-0\nArchitecture: all\n"

    (found,) = packages.listed({"var/lib/dpkg/status.d/tzdata": status, packages.OS_RELEASE: RELEASE})

    assert (found.name, found.version, found.where) == ("tzdata", "2026a-0", "var/lib/dpkg/status.d/tzdata")


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (f"{SITE}/TransferQueue-0.1.11.dist-info/METADATA", SITE),
        (f"{SITE}/setuptools/_vendor/TransferQueue-0.1.11.dist-info/METADATA", f"{SITE}/setuptools/_vendor"),
        ("usr/lib/python3/dist-packages/TransferQueue-0.1.11.egg-info", "usr/lib/python3/dist-packages"),
        ("usr/lib/python3/dist-packages/TransferQueue.egg-info/PKG-INFO", "usr/lib/python3/dist-packages"),
        (f"{SITE}/TransferQueue-0.1.11-py3.9.egg/EGG-INFO/PKG-INFO", SITE),
    ],
)
def test_a_python_package_is_found_in_every_form_and_folder(path: str, where: str) -> None:
    assert packages.is_database(path)
    (found,) = packages.listed({path: metadata("TransferQueue", "0.1.11")})

    assert (found.purl, found.where) == ("pkg:pypi/transferqueue@0.1.11", where)


@pytest.mark.parametrize(
    "path",
    ["opt/METADATA", f"{SITE}/x.dist-info/RECORD", "var/lib/dpkg/status-old", "var/lib/dpkg/info/x.list", "etc/a.json"],
)
def test_other_files_are_not_databases(path: str) -> None:
    assert not packages.is_database(path)


def test_the_same_package_in_two_prefixes_is_two_packages() -> None:
    files = {f"opt/{prefix}/a.dist-info/METADATA": metadata("a", "1+cpu") for prefix in ("x", "y")}

    assert [(each.purl, each.where) for each in packages.listed(files)] == [
        ("pkg:pypi/a@1%2Bcpu", "opt/x"),
        ("pkg:pypi/a@1%2Bcpu", "opt/y"),
    ]


def test_a_licence_is_the_spdx_expression_of_the_package() -> None:
    (found,) = packages.listed({f"{SITE}/a.dist-info/METADATA": metadata("a", "1", "License-Expression: MIT\n")})

    assert found.licence == "MIT"


def test_metadata_without_a_name_or_a_version_is_skipped() -> None:
    assert packages.listed({f"{SITE}/a.dist-info/METADATA": b"Name: a\n", f"{SITE}/b.egg-info": b""}) == []


def test_conda_packages_have_their_build() -> None:
    path = "opt/conda/envs/py_3.9/conda-meta/python-3.9.19-h955ad1f_1.json"
    record = b'{"name": "python", "version": "3.9.19", "build": "h955ad1f_1", "license": "PSF-2.0"}'

    assert packages.is_database(path)
    (found,) = packages.listed({path: record})

    assert (found.purl, found.where) == ("pkg:conda/python@3.9.19?build=h955ad1f_1", "opt/conda/envs/py_3.9")


@pytest.mark.parametrize("path", sorted(packages.RPM))
def test_an_rpm_database_is_refused_not_ignored(path: str) -> None:
    assert packages.is_database(path)
    assert packages.listed({path: b""}) == []
    with pytest.raises(ImageError, match=f"has an RPM database, /{path};.* base on Debian"):
        packages.listed({path: b"something"})
