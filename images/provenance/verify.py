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

INSIDE = "opt/verljob/"  # where the context's toolkit/ is copied to
MADE_THERE = f"{INSIDE}guard/"  # by the build's own steps: lists of packages
NAMED = 3  # of what differs, by name


def verify(reference: str, key: Path | None = None) -> str:
    """Check SBOM and provenance of ``NAME:TAG`` or ``NAME@DIGEST`` and return what was found.

    NotTrusted says all that differs, or that the owner of the public ``key`` did not sign image and statements. The
    image is pulled, by its digest, where this machine lacks it.
    """
    repository, tag = Repository.parse(reference)
    with repository:
        subject = referrers.image(repository, tag)
        contents = {kind: referrers.fetch(repository, subject, kind) for kind in (SBOM, PROVENANCE)}
        signed = signing.told(repository, subject, key, contents)
        ids = referrers.ids(repository, subject)
    described, stated = sbom.read(contents[SBOM])
    subjects, predicate = slsa.read(contents[PROVENANCE])
    image = _present(repository.name, subject.digest, ids)
    files = rootfs.read(image, lambda path: packages.is_database(path) or path.startswith(INSIDE))
    found = packages.listed(files)
    problems = [
        *_about("SBOM", [described], subject.digest),
        *_about("provenance", subjects, subject.digest),
        *_packages(stated, found),
        *_origin(predicate, image, files),
    ]
    if problems:
        raise NotTrusted(f"{repository.name}@{subject.digest}: " + "; ".join(problems))
    told = f"{len(found)} packages, all stated and no other; base and toolkit as stated; {signed}"
    return f"{repository.name}@{subject.digest}: {told}"


def _present(name: str, digest: str, ids: set[str]) -> Image:
    """The image of this digest on this machine, where its ID is one that the registry's manifest names."""
    try:
        image = daemon().images.get(f"{name}@{digest}")
    except ImageNotFound:
        try:
            image = daemon().images.pull(name, tag=digest)
        except APIError as refused:
            raise RegistryFailed(f"{name}@{digest} cannot be pulled: {refused.explanation}") from refused
    if image.id not in ids:
        raise NotTrusted(f"{name}@{digest} is on this machine as {image.id}, which its manifest does not name")
    return image


def _about(what: str, digests: list[str], digest: str) -> Iterator[str]:
    if digests != [digest]:
        yield f"the {what} is about {' and '.join(digests)}"


def _packages(stated: list[Package], found: list[Package]) -> Iterator[str]:
    there, said = {each.key: each for each in found}, {each.key: each for each in stated}
    if absent := [said[key] for key in said if key not in there]:
        yield f"the SBOM states {_named(absent)} that the image does not have"
    if silent := [there[key] for key in there if key not in said]:
        yield f"the image has {_named(silent)} that the SBOM does not state"


def _origin(predicate: Mapping[str, Any], image: Image, files: Mapping[str, bytes]) -> Iterator[str]:
    """The layers of the base that is stated come first, and every file of the toolkit is the stated one."""
    dependencies = {each.get("name"): each for each in predicate["buildDefinition"].get("resolvedDependencies", [])}
    layers = dependencies.get(BASE, {}).get("annotations", {}).get("layers", [])
    if not layers or image.attrs["RootFS"]["Layers"][: len(layers)] != layers:
        yield f"the image does not stand on the stated base {dependencies.get(BASE, {}).get('uri')}"
    stated = {
        INSIDE + name[len(TOOLKIT) :]: each.get("digest", {}).get("sha256")
        for name, each in dependencies.items()
        if name and name.startswith(TOOLKIT)
    }
    there = {
        path: hashlib.sha256(content).hexdigest()
        for path, content in files.items()
        if path.startswith(INSIDE) and not path.startswith(MADE_THERE)
    }
    if differing := sorted(path for path in {*stated, *there} if stated.get(path) != there.get(path)):
        yield f"not the stated toolkit: {', '.join('/' + each for each in differing[:NAMED])}"


def _named(several: list[Package]) -> str:
    more = f" and {len(several) - NAMED} more" if len(several) > NAMED else ""
    return f"{', '.join(map(str, sorted(several)[:NAMED]))}{more}"
