"""Candidates: complete images of a commit in the registry, each with SBOM, provenance and signature.

A candidate's tag is set last. A later run at the same commit, also on another machine, finds the image by it and
neither builds nor pushes it again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from images.builds.build import BuildRequest, build
from images.builds.site import Site
from images.catalog.variant import Variant
from images.context import context, inputs
from images.engine.daemon import local
from images.errors import CommandFailed, NotTrusted, ReleaseFailed
from images.host.locking import exclusive
from images.host.paths import ROOT
from images.host.process import run
from images.provenance import attest, signing, slsa, verify
from images.registry import referrers
from images.registry.client import Repository
from images.registry.push import Push
from images.registry.referrers import PROVENANCE, SBOM
from images.release.notes import Published
from images.release.release import Release
from images.report.record import BASE

SMOKE_TESTS = ROOT / "tests" / "image" / "inherited"
SHOWN = 3  # files that a message names


def find(release: Release, variant: Variant) -> str:
    """Return the digest of a variant's candidate, or an empty string if the registry has none.

    Raise NotTrusted if the candidate is not complete, not signed by the release's key, or built from other files than
    this checkout's. A signature has no age: the registry could serve an older version's image under this tag.
    """
    with Repository(release.repository(variant)) as repository:
        if repository.manifest(release.candidate_tag(variant)) is None:
            return ""
        subject = referrers.find_image(repository, release.candidate_tag(variant))
        contents = {kind: referrers.fetch(repository, subject, kind) for kind in (SBOM, PROVENANCE)}
        signing.check(repository, subject, release.public_key, contents)
    definition = slsa.read(contents[PROVENANCE])[1]["buildDefinition"]
    used = {each.get("name"): each.get("digest", {}).get("sha256") for each in definition["resolvedDependencies"]}
    own = context_files(variant, definition["externalParameters"]["base"])
    if others := sorted(name for name, digest in own.items() if used.get(name) != digest):
        raise NotTrusted(
            f"{release.repository(variant)}@{subject.digest} was built from other files than {variant.name} has in "
            f"this checkout, among them {', '.join(others[:SHOWN])}"
        )
    return subject.digest


def context_files(variant: Variant, base: str) -> dict[str, str]:
    """Return the sha256 of each file that this checkout has for a build of a variant on ``base``, except downloads."""
    with exclusive(variant.name):
        staged = context.stage(variant, base, {})
    return inputs.files({name: entry for name, entry in staged.entries.items() if entry})


def make(release: Release, variant: Variant, names: Sequence[str], site: Site) -> str:
    """Build a variant under local ``names``, test, push, attest, sign and verify it; return its digest.

    The candidate's tag is set after all of these.
    """
    image_id = build(BuildRequest(variant, names), site)
    smoke_test(image_id)
    name = release.repository(variant)
    push = Push(local(image_id), release.tag(variant), [name], [release.candidate_tag(variant)])
    uploaded = push.upload()
    attest.attach(uploaded, key=release.key)
    (digest,) = uploaded.values()
    verify.verify(f"{name}@{digest}", release.public_key)
    push.tag(uploaded)
    return digest


def smoke_test(image: str) -> None:
    """Run the tests that images inherit (tests/image/inherited) on a local image."""
    settings = ["-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider"]
    argv = [sys.executable, "-m", "pytest", "--quiet", *settings, str(SMOKE_TESTS)]
    try:
        run(argv, {"VERLJOB_TEST_IMAGES": image})
    except CommandFailed as failure:
        raise ReleaseFailed(f"the smoke test of {image} failed: {failure}") from failure


def describe(release: Release, variant: Variant, digest: str) -> Published:
    """Describe a candidate by what the registry has: its manifest, configuration and provenance."""
    name = release.repository(variant)
    with Repository(name) as repository:
        subject = referrers.find_image(repository, digest)
        image = referrers.image_manifest(repository, subject).parsed
        labels = json.loads(repository.blob(image["config"]["digest"]))["config"].get("Labels") or {}
        _, predicate = slsa.read(referrers.fetch(repository, subject, PROVENANCE))
    dependencies = predicate["buildDefinition"]["resolvedDependencies"]
    base = next(each for each in dependencies if each.get("name") == BASE)
    size = sum(part["size"] for part in (image["config"], *image["layers"]))
    state = labels.get("verljob.state", "not stated").partition(": ")[0]  # without its evidence
    return Published(variant.name, name, release.tag(variant), digest, size, _base_name(base), state)


def _base_name(base: Mapping[str, Any]) -> str:
    """Name and digest of a base, or its ID if no registry gave it a digest."""
    name = base["uri"].removeprefix("docker-image://").partition("@")[0]
    digest = f"sha256:{base['digest']['sha256']}"
    return f"{name} with ID {digest}" if digest == base["annotations"]["id"] else f"{name}@{digest}"
