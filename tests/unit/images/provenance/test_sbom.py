"""The SPDX document of an image: what it says, that it comes back, and that a broken one is refused."""

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


def test_it_is_about_the_image_by_digest_and_contains_every_package() -> None:
    told = json.loads(document())

    image, *parts = told["packages"]
    assert told["spdxVersion"] == "SPDX-2.3"
    assert told["creationInfo"]["created"] == "2026-11-21T12:00:01Z"
    assert image["checksums"] == [{"algorithm": "SHA256", "checksumValue": "ab" * 32}]
    assert image["externalRefs"][0]["referenceLocator"].startswith(f"pkg:oci/verl.cpu@sha256%3A{'ab' * 32}?")
    relations = {(each["spdxElementId"], each["relationshipType"]) for each in told["relationships"]}
    assert relations == {("SPDXRef-DOCUMENT", "DESCRIBES"), ("SPDXRef-image", "CONTAINS")}
    assert sorted(each["name"] for each in parts) == ["attrs", "attrs", "libstdc++6", "odd"]


def test_a_licence_is_stated_where_spdx_knows_it() -> None:
    declared = [each.get("licenseDeclared", "NOASSERTION") for each in json.loads(document())["packages"][1:]]

    assert declared == ["NOASSERTION", "MIT OR Apache-2.0", "MIT", "NOASSERTION"]


def test_what_is_written_is_what_is_read() -> None:
    digest, packages = sbom.read(document())

    assert digest == DIGEST
    assert {each.key for each in packages} == {each.key for each in PACKAGES}


def test_the_same_image_gives_the_same_bytes() -> None:
    assert document() == document()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"not json", "no SPDX document"),
        (b"[]", "no SPDX document"),
        (b"{}", "no SPDX document"),
        (document(packages=[]), "breaks SPDX's rules|does not say by its digest"),
        (document(dataLicense="mine"), "breaks SPDX's rules"),
        (document(packages=json.loads(document())["packages"][1:], relationships=[]), "SPDX's rules|by its digest"),
    ],
)
def test_a_broken_document_is_refused(content: bytes, told: str) -> None:
    with pytest.raises(NotTrusted, match=told):
        sbom.read(content)


def test_what_is_stated_in_two_registries_lies_in_two_files(tmp_path: Path) -> None:
    names = ("a.example:5000/team/verl.cpu", "b.example/team/verl.cpu")

    paths = [path for name in names for path in attest._files({SBOM: name.encode()}, name, DIGEST, tmp_path)]

    assert [path.read_text() for path in paths] == list(names)
