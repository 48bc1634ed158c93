"""SBOM of an image as SPDX 2.3, written and read by spdx-tools.

It depends on the image alone: the same image gives the same bytes, and the time in it is the image's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from license_expression import ExpressionError
from spdx_tools.common.spdx_licensing import spdx_licensing
from spdx_tools.spdx.jsonschema.document_converter import DocumentConverter
from spdx_tools.spdx.model import (
    Actor,
    ActorType,
    Checksum,
    ChecksumAlgorithm,
    CreationInfo,
    Document,
    ExternalPackageRef,
    ExternalPackageRefCategory,
    PackagePurpose,
    Relationship,
    RelationshipType,
    SpdxNoAssertion,
)
from spdx_tools.spdx.model import Package as SpdxPackage
from spdx_tools.spdx.parser.error import SPDXParsingError
from spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser import JsonLikeDictParser
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from images.contents.packages import Package
from images.errors import NotTrusted

VERSION = "SPDX-2.3"
DOCUMENT, IMAGE = "SPDXRef-DOCUMENT", "SPDXRef-image"
FOUND = "found in /"  # and a folder: in a package's sourceInfo


def document(name: str, digest: str, created: datetime, packages: Sequence[Package]) -> bytes:
    """The SBOM of the image ``name`` (without a tag) that is known by ``digest``, as JSON."""
    creation = CreationInfo(
        VERSION,
        DOCUMENT,
        name,
        f"https://spdx.org/spdxdocs/{quote(name)}-{digest.partition(':')[2]}",
        [Actor(ActorType.TOOL, "verl-on-slurm")],
        created.replace(microsecond=0, tzinfo=None),
    )
    parts = {_id(package): package for package in packages}
    whole = Document(creation, [_image(name, digest), *(_part(spdx_id, each) for spdx_id, each in parts.items())])
    whole.relationships = [
        Relationship(DOCUMENT, RelationshipType.DESCRIBES, IMAGE),
        *(Relationship(IMAGE, RelationshipType.CONTAINS, spdx_id) for spdx_id in parts),
    ]
    _refuse_invalid(whole)
    return json.dumps(DocumentConverter().convert(whole), indent=1, sort_keys=True).encode() + b"\n"


def read(content: bytes) -> tuple[str, list[Package]]:
    """The digest of the image that an SBOM describes, and the packages that it states; NotTrusted where it is none."""
    try:
        whole = JsonLikeDictParser().parse(dict(json.loads(content)))
    except (ValueError, TypeError, SPDXParsingError) as broken:
        raise NotTrusted(f"the SBOM is no SPDX document: {broken}") from broken
    _refuse_invalid(whole)
    described = [each for each in whole.packages if each.spdx_id == IMAGE]
    if len(described) != 1 or not described[0].checksums:
        raise NotTrusted("the SBOM does not say by its digest which image it describes")
    return f"sha256:{described[0].checksums[0].value}", [
        _package(each) for each in whole.packages if each.spdx_id != IMAGE
    ]


def _image(name: str, digest: str) -> SpdxPackage:
    purl = f"pkg:oci/{quote(name.rpartition('/')[2].lower())}@{quote(digest, '')}?repository_url={quote(name, '')}"
    return SpdxPackage(
        IMAGE,
        name,
        SpdxNoAssertion(),
        files_analyzed=False,
        checksums=[Checksum(ChecksumAlgorithm.SHA256, digest.partition(":")[2])],
        external_references=[_reference(purl)],
        primary_package_purpose=PackagePurpose.CONTAINER,
    )


def _part(spdx_id: str, package: Package) -> SpdxPackage:
    return SpdxPackage(
        spdx_id,
        package.name,
        SpdxNoAssertion(),
        package.version,
        files_analyzed=False,
        license_declared=_licence(package.licence),
        source_info=f"{FOUND}{package.where}",
        external_references=[_reference(package.purl)],
    )


def _package(part: SpdxPackage) -> Package:
    purl = next((each.locator for each in part.external_references if each.reference_type == "purl"), "")
    where = (part.source_info or "").removeprefix(FOUND)
    return Package(purl, where, part.name, part.version or "")


def _reference(purl: str) -> ExternalPackageRef:
    return ExternalPackageRef(ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", purl)


def _id(package: Package) -> str:
    """One that a reader knows again in the next image, and that no other package of this one has."""
    words = "".join(each if each.isalnum() and each.isascii() else "-" for each in package.name)
    return f"SPDXRef-{words}-{hashlib.sha256(repr(package.key).encode()).hexdigest()[:12]}"


@cache
def _licence(told: str) -> Any:
    """The licence where the package names one that SPDX knows."""
    try:
        return spdx_licensing.parse(told, validate=True, strict=True) if told else SpdxNoAssertion()
    except ExpressionError:
        return SpdxNoAssertion()


def _refuse_invalid(whole: Document) -> None:
    problems: Iterable[Any] = validate_full_spdx_document(whole, VERSION)
    if told := [each.validation_message for each in problems]:
        raise NotTrusted(f"the SBOM breaks SPDX's rules: {'; '.join(told[:3])}")
