"""SBOM of an image as SPDX 2.3, written and read by spdx-tools.

The bytes depend on the image only, and so does the time in them: the image's creation.
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
from spdx_tools.spdx import model
from spdx_tools.spdx.jsonschema.document_converter import DocumentConverter
from spdx_tools.spdx.parser.error import SPDXParsingError
from spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser import JsonLikeDictParser
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from images.contents.packages import Package
from images.errors import NotTrusted

VERSION = "SPDX-2.3"
DOCUMENT, IMAGE = "SPDXRef-DOCUMENT", "SPDXRef-image"
SOURCE_INFO = "found in /"  # followed by a folder, in a package's sourceInfo


def document(name: str, digest: str, created: datetime, packages: Sequence[Package]) -> bytes:
    """Return the SBOM of an image as JSON; ``name`` has no tag, ``digest`` identifies the image."""
    creation = model.CreationInfo(
        VERSION,
        DOCUMENT,
        name,
        f"https://spdx.org/spdxdocs/{quote(name)}-{digest.partition(':')[2]}",
        [model.Actor(model.ActorType.TOOL, "verl-on-slurm")],
        created.replace(microsecond=0, tzinfo=None),
    )
    contents = [_to_spdx(package) for package in packages]
    relationships = [
        model.Relationship(DOCUMENT, model.RelationshipType.DESCRIBES, IMAGE),
        *(model.Relationship(IMAGE, model.RelationshipType.CONTAINS, package.spdx_id) for package in contents),
    ]
    spdx = model.Document(creation, [_image(name, digest), *contents], relationships=relationships)
    _validate(spdx)
    return json.dumps(DocumentConverter().convert(spdx), indent=1, sort_keys=True).encode() + b"\n"


def read(content: bytes) -> tuple[str, list[Package]]:
    """Return the image's digest and the packages that an SBOM lists; raise NotTrusted if it is not a valid SBOM."""
    try:
        spdx = JsonLikeDictParser().parse(dict(json.loads(content)))
    except (ValueError, TypeError, SPDXParsingError) as error:
        raise NotTrusted(f"the SBOM is not a valid SPDX document: {error}") from error
    _validate(spdx)
    images = [package for package in spdx.packages if package.spdx_id == IMAGE]
    if len(images) != 1 or not images[0].checksums:
        raise NotTrusted("the SBOM does not give the digest of the image that it describes")
    packages = [_from_spdx(package) for package in spdx.packages if package.spdx_id != IMAGE]
    return f"sha256:{images[0].checksums[0].value}", packages


def _image(name: str, digest: str) -> model.Package:
    purl = f"pkg:oci/{quote(name.rpartition('/')[2].lower())}@{quote(digest, '')}?repository_url={quote(name, '')}"
    return model.Package(
        IMAGE,
        name,
        model.SpdxNoAssertion(),
        files_analyzed=False,
        checksums=[model.Checksum(model.ChecksumAlgorithm.SHA256, digest.partition(":")[2])],
        external_references=[_reference(purl)],
        primary_package_purpose=model.PackagePurpose.CONTAINER,
    )


def _to_spdx(package: Package) -> model.Package:
    return model.Package(
        _id(package),
        package.name,
        model.SpdxNoAssertion(),
        package.version,
        files_analyzed=False,
        license_declared=_licence(package.licence),
        source_info=f"{SOURCE_INFO}{package.where}",
        external_references=[_reference(package.purl)],
    )


def _from_spdx(package: model.Package) -> Package:
    purl = next((each.locator for each in package.external_references if each.reference_type == "purl"), "")
    where = (package.source_info or "").removeprefix(SOURCE_INFO)
    return Package(purl, where, package.name, package.version or "")


def _reference(purl: str) -> model.ExternalPackageRef:
    return model.ExternalPackageRef(model.ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", purl)


def _id(package: Package) -> str:
    """Return an ID that is unique in an image and the same in every image with this package."""
    name = "".join(char if char.isalnum() and char.isascii() else "-" for char in package.name)
    return f"SPDXRef-{name}-{hashlib.sha256(repr(package.key).encode()).hexdigest()[:12]}"


@cache
def _licence(text: str) -> Any:
    """Return the licence if SPDX knows it, else no assertion."""
    try:
        return spdx_licensing.parse(text, validate=True, strict=True) if text else model.SpdxNoAssertion()
    except ExpressionError:
        return model.SpdxNoAssertion()


def _validate(spdx: model.Document) -> None:
    problems: Iterable[Any] = validate_full_spdx_document(spdx, VERSION)
    if messages := [problem.validation_message for problem in problems]:
        raise NotTrusted(f"the SBOM breaks SPDX's rules: {'; '.join(messages[:3])}")
