"""Writes SBOM and provenance of an image to files, and attaches them in its registry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from docker.models.images import Image
from docker.utils import parse_repository_tag

from images.contents import packages
from images.engine.daemon import local
from images.host.paths import ATTESTATIONS
from images.provenance import sbom, signing, slsa
from images.registry import referrers
from images.registry.client import Repository
from images.registry.referrers import PROVENANCE, SBOM, Kind
from images.report import record


def statements(image: Image, name: str, digest: str) -> dict[Kind, bytes]:
    """SBOM and, where this checkout built the image, provenance of what ``name`` (without a tag) has as ``digest``."""
    created = datetime.strptime(image.attrs["Created"][:19], "%Y-%m-%dT%H:%M:%S")
    stated = {SBOM: sbom.document(name, digest, created, packages.inside(image))}
    if known := record.read(str(image.id)):
        stated[PROVENANCE] = slsa.statement(known, name, digest)
    return stated


def write(reference: str, folder: Path = ATTESTATIONS) -> list[Path]:
    """State an image of this machine by its ID, in files of ``folder``."""
    image = local(reference)
    name, _ = parse_repository_tag(reference)
    return _files(statements(image, name, str(image.id)), name, str(image.id), folder)


def attach(pushed: Mapping[str, str], folder: Path = ATTESTATIONS, key: Path | None = None) -> list[Path]:
    """State what was pushed (reference → digest), each image once in each repository; the same as files.

    With the private ``key`` image and statements are signed.
    """
    paths = []
    for (name, digest), reference in {(parse_repository_tag(each)[0], pushed[each]): each for each in pushed}.items():
        stated = statements(local(reference), name, digest)
        with Repository(name) as repository:
            subject = referrers.image(repository, digest)
            for kind, content in stated.items():
                referrers.attach(repository, subject, kind, content)
            if key:
                signing.sign(repository, subject, key, stated)
        paths += _files(stated, name, digest, folder)
    return paths


def _files(stated: Mapping[Kind, bytes], name: str, digest: str, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}-{digest.partition(':')[2][:12]}"  # one for each repository
    paths = {folder / f"{stem}.{kind.file}": content for kind, content in stated.items()}
    for path, content in paths.items():
        path.write_bytes(content)
    return list(paths)
