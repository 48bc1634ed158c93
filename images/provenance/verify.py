"""Verifies SBOM, provenance and signature of an image in a registry against the image itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docker.errors import APIError, ImageNotFound
from docker.models.images import Image

from images.contents import packages, rootfs
from images.contents.packages import Package
from images.engine.daemon import daemon
from images.errors import NotTrusted, RegistryFailed
from images.provenance import sbom, signing, slsa
from images.registry import referrers
from images.registry.client import Repository
from images.registry.referrers import PROVENANCE, SBOM
from images.report.record import BASE, TOOLKIT

TOOLKIT_FOLDER = "opt/verljob/"  # where the Dockerfile copies the context's toolkit/
GUARD_FOLDER = f"{TOOLKIT_FOLDER}guard/"  # written by the build's own steps: lists of packages
LISTED = 3  # differences that a message names


def verify(reference: str, key: Path | None = None) -> str:
    """Check SBOM and provenance of ``NAME:TAG`` or ``NAME@DIGEST`` and return a summary.

    Raise NotTrusted with every difference, or if the owner of the public ``key`` did not sign image and statements. The
    image is pulled by its digest if this host does not have it.
    """
    repository, tag = Repository.parse(reference)
    with repository:
        subject = referrers.find_image(repository, tag)
        contents = {kind: referrers.fetch(repository, subject, kind) for kind in (SBOM, PROVENANCE)}
        signature = signing.check(repository, subject, key, contents)
        ids = referrers.image_ids(repository, subject)
    described, stated = sbom.read(contents[SBOM])
    subjects, predicate = slsa.read(contents[PROVENANCE])
    image = _local_image(repository.name, subject.digest, ids)
    files = rootfs.read(image, lambda path: packages.is_database(path) or path.startswith(TOOLKIT_FOLDER))
    found = packages.listed(files)
    problems = [
        *_check_subject("SBOM", [described], subject.digest),
        *_check_subject("provenance", subjects, subject.digest),
        *_check_packages(stated, found),
        *check_origin(predicate, image, files),
    ]
    name = f"{repository.name}@{subject.digest}"
    if problems:
        raise NotTrusted(f"{name}: " + "; ".join(problems))
    return f"{name}: {len(found)} packages, same as in the SBOM; base and toolkit as stated; {signature}"


def _local_image(name: str, digest: str, ids: set[str]) -> Image:
    """Return this host's image with the digest, pulled if missing; its ID has to be one of ``ids``."""
    try:
        image = daemon().images.get(f"{name}@{digest}")
    except ImageNotFound:
        try:
            image = daemon().images.pull(name, tag=digest)
        except APIError as error:
            raise RegistryFailed(f"{name}@{digest} cannot be pulled: {error.explanation}") from error
    if image.id not in ids:
        raise NotTrusted(f"this host has {name}@{digest} with the ID {image.id}, which its manifest does not name")
    return image


def _check_subject(label: str, digests: list[str], digest: str) -> Iterator[str]:
    if digests != [digest]:
        yield f"the {label} is about {' and '.join(digests)}"


def _check_packages(stated: list[Package], found: list[Package]) -> Iterator[str]:
    in_image, in_sbom = ({package.key: package for package in group} for group in (found, stated))
    if absent := [in_sbom[key] for key in in_sbom if key not in in_image]:
        yield f"the SBOM lists {_summary(absent)}, which the image does not have"
    if unlisted := [in_image[key] for key in in_image if key not in in_sbom]:
        yield f"the image has {_summary(unlisted)}, which the SBOM does not list"


def check_origin(predicate: Mapping[str, Any], image: Image, files: Mapping[str, bytes]) -> Iterator[str]:
    """Check that the image starts with the layers of the stated base, and has the stated files of the toolkit."""
    dependencies = {each.get("name"): each for each in predicate["buildDefinition"].get("resolvedDependencies", [])}
    layers = dependencies.get(BASE, {}).get("annotations", {}).get("layers", [])
    if not layers or image.attrs["RootFS"]["Layers"][: len(layers)] != layers:
        yield f"the image does not start with the layers of the stated base, {dependencies.get(BASE, {}).get('uri')}"
    stated = {
        TOOLKIT_FOLDER + name[len(TOOLKIT) :]: each.get("digest", {}).get("sha256")
        for name, each in dependencies.items()
        if name and name.startswith(TOOLKIT)
    }
    found = {
        path: hashlib.sha256(content).hexdigest()
        for path, content in files.items()
        if path.startswith(TOOLKIT_FOLDER) and not path.startswith(GUARD_FOLDER)
    }
    if differing := sorted(path for path in {*stated, *found} if stated.get(path) != found.get(path)):
        yield f"files of the toolkit differ: {', '.join('/' + path for path in differing[:LISTED])}"


def _summary(differing: list[Package]) -> str:
    more = f" and {len(differing) - LISTED} more" if len(differing) > LISTED else ""
    return f"{', '.join(map(str, sorted(differing)[:LISTED]))}{more}"
