"""SPDX document of an image: its content, a round trip, and refusal of an invalid one."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from images.contents.packages import Package
from images.errors import NotTrusted
from images.provenance import attest, sbom
from images.registry.referrers import SBOM

NAME, DIGEST = "r.example:5000/team/verl.cpu", "sha256:" + "ab" * 32
CREATED = datetime(2026, 11, 21, 12, 0, 1, 999)
PACKAGES = [
    Package("pkg:deb/debian/libstdc%2B%2B6@12?arch=amd64", "var/lib/dpkg", "libstdc++6", "12"),
    Package("pkg:pypi/attrs@26.1.0", "opt/venv", "attrs", "26.1.0", "MIT OR Apache-2.0"),
    Package("pkg:pypi/attrs@26.1.0", "opt/other", "attrs", "26.1.0", "MIT"),
    Package("pkg:pypi/odd@1", "opt/venv", "odd", "1", "Do what thou wilt"),
]


def document(**changed: object) -> bytes:
    return json.dumps({**json.loads(sbom.document(NAME, DIGEST, CREATED, PACKAGES)), **changed}).encode()


def test_document_names_the_digest_and_every_package() -> None:
    spdx = json.loads(document())

    image, *parts = spdx["packages"]
    assert spdx["spdxVersion"] == "SPDX-2.3"
    assert spdx["creationInfo"]["created"] == "2026-11-21T12:00:01Z"
    assert image["checksums"] == [{"algorithm": "SHA256", "checksumValue": "ab" * 32}]
    assert image["externalRefs"][0]["referenceLocator"].startswith(f"pkg:oci/verl.cpu@sha256%3A{'ab' * 32}?")
    relations = {(each["spdxElementId"], each["relationshipType"]) for each in spdx["relationships"]}
    assert relations == {("SPDXRef-DOCUMENT", "DESCRIBES"), ("SPDXRef-image", "CONTAINS")}
    assert sorted(each["name"] for each in parts) == ["attrs", "attrs", "libstdc++6", "odd"]


def test_licence_known_to_spdx_is_declared() -> None:
    declared = [each.get("licenseDeclared", "NOASSERTION") for each in json.loads(document())["packages"][1:]]

    assert declared == ["NOASSERTION", "MIT OR Apache-2.0", "MIT", "NOASSERTION"]


def test_read_returns_what_document_wrote() -> None:
    digest, packages = sbom.read(document())

    assert digest == DIGEST
    assert {each.key for each in packages} == {each.key for each in PACKAGES}


def test_same_image_gives_the_same_bytes() -> None:
    assert document() == document()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not json", "not a valid SPDX document"),
        (b"[]", "not a valid SPDX document"),
        (b"{}", "not a valid SPDX document"),
        (document(packages=[]), "breaks SPDX's rules|does not give the digest"),
        (document(dataLicense="mine"), "breaks SPDX's rules"),
        (document(packages=json.loads(document())["packages"][1:], relationships=[]), "'s rules|not give the digest"),
    ],
)
def test_invalid_document_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(NotTrusted, match=message):
        sbom.read(content)


def test_statements_for_two_registries_are_two_files(tmp_path: Path) -> None:
    names = ("a.example:5000/team/verl.cpu", "b.example/team/verl.cpu")

    paths = [path for name in names for path in attest._write_files({SBOM: name.encode()}, name, DIGEST, tmp_path)]

    assert [path.read_text() for path in paths] == list(names)
