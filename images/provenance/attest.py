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
    """Make the SBOM and, if this checkout built the image, its provenance; ``name`` has no tag."""
    created = datetime.strptime(image.attrs["Created"][:19], "%Y-%m-%dT%H:%M:%S")
    made = {SBOM: sbom.document(name, digest, created, packages.inside(image))}
    if recorded := record.read(str(image.id)):
        made[PROVENANCE] = slsa.statement(recorded, name, digest)
    return made


def write(reference: str, folder: Path = ATTESTATIONS) -> list[Path]:
    """Write the statements of an image of this host, which they name by its ID, to files in ``folder``."""
    image = local(reference)
    name, _ = parse_repository_tag(reference)
    return _write_files(statements(image, name, str(image.id)), name, str(image.id), folder)


def attach(pushed: Mapping[str, str], folder: Path = ATTESTATIONS, key: Path | None = None) -> list[Path]:
    """Attach the statements of pushed images (reference → digest), and write them to files.

    With a private ``key``, sign image and statements.
    """
    paths = []
    for reference, digest in pushed.items():
        name, _ = parse_repository_tag(reference)
        made = statements(local(reference), name, digest)
        with Repository(name) as repository:
            subject = referrers.find_image(repository, digest)
            for kind, content in made.items():
                referrers.attach(repository, subject, kind, content)
            if key:
                signing.sign(repository, subject, key, made)
        paths += _write_files(made, name, digest, folder)
    return paths


def _write_files(made: Mapping[Kind, bytes], name: str, digest: str, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}-{digest.partition(':')[2][:12]}"  # one for each repository
    paths = {folder / f"{stem}.{kind.file_suffix}": content for kind, content in made.items()}
    for path, content in paths.items():
        path.write_bytes(content)
    return list(paths)
