"""Referrers of an image: stored in its repository under tags made of its digest, as cosign does.

Registries of before OCI 1.1 cannot be asked what refers to an image, hence the tag. The manifest names its ``subject``
all the same, so that a registry of OCI 1.1 lists it among the image's referrers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from images.errors import NotTrusted
from images.registry.client import INDEXES, OCI_MANIFEST, Manifest, Repository

EMPTY = "application/vnd.oci.empty.v1+json"


@dataclass(frozen=True)
class Kind:
    """One kind of attachment: the tag's ending, what the layer and the artifact are, how its file is called."""

    ending: str
    media_type: str
    artifact_type: str
    file: str
    called: str


SBOM = Kind("sbom", "text/spdx+json", "application/spdx+json", "spdx.json", "SBOM")
PROVENANCE = Kind(
    "provenance", "application/vnd.in-toto+json", "application/vnd.in-toto+json", "intoto.json", "provenance"
)

SIGNATURE = Kind(
    "sig",
    "application/vnd.dev.cosign.simplesigning.v1+json",
    "application/vnd.dev.cosign.artifact.sig.v1+json",
    "sig",
    "signature",
)


def tag(digest: str, kind: Kind) -> str:
    """``sha256-<hex>.<ending>``."""
    return f"{digest.replace(':', '-')}.{kind.ending}"


def image(repository: Repository, reference: str) -> Manifest:
    """What a tag or digest names: an image, or an index of one platform's image, as newer engines push it."""
    found = repository.manifest(reference)
    if found is None:
        raise NotTrusted(f"{repository.name} has no {reference}; `invoke push` takes it there")
    if found.media_type in INDEXES and len(platforms(found)) != 1:
        raise NotTrusted(f"{repository.name} has images of several platforms as {reference}: name one by its digest")
    return found


def platforms(index: Manifest) -> list[str]:
    """The digests of an index's images; what a builder attested of them is none."""
    listed = index.parts.get("manifests", [])
    return [each["digest"] for each in listed if each.get("platform", {}).get("architecture") != "unknown"]


def ids(repository: Repository, subject: Manifest) -> set[str]:
    """What an engine may call this image: by its configuration, or, with containerd's store, by what was pulled."""
    names = {subject.digest}
    inner = [repository.manifest(each) for each in platforms(subject)] if subject.media_type in INDEXES else [subject]
    return names | {each.parts.get("config", {}).get("digest", "") for each in inner if each}


def attach(
    repository: Repository,
    subject: Manifest,
    kind: Kind,
    content: bytes,
    *,
    notes: Mapping[str, str] | None = None,
    beside: Sequence[Mapping[str, Any]] = (),
) -> Manifest:
    """Keep ``content`` as the subject's attachment, in place of the one before; what is there already is not sent.

    ``notes`` are its annotations, ``beside`` the attachments that stay with it.
    """
    layer = repository.put_blob(content, kind.media_type)
    return repository.put_manifest(
        tag(subject.digest, kind),
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": kind.artifact_type,
            "config": repository.put_blob(b"{}", EMPTY),
            "layers": [*map(dict, beside), {**layer, "annotations": dict(notes)} if notes else layer],
            "subject": subject.descriptor,
        },
    )


def fetch(repository: Repository, subject: Manifest, kind: Kind) -> bytes:
    """The subject's one attachment; NotTrusted where there is none, or another image's."""
    found = layers(repository, subject, kind)
    if len(found) != 1:
        many = f"{len(found)} of the {kind.called}" if found else f"no {kind.called}"
        raise NotTrusted(f"{repository.name}@{subject.digest} has {many}; `invoke push` attaches it")
    return repository.blob(found[0]["digest"])


def layers(repository: Repository, subject: Manifest, kind: Kind) -> list[dict[str, Any]]:
    """The descriptors of the subject's attachments of a kind; NotTrusted where they are another image's."""
    found = repository.manifest(tag(subject.digest, kind))
    if found is None:
        return []
    stated = found.parts
    if (other := stated.get("subject", subject.descriptor).get("digest")) != subject.digest:
        raise NotTrusted(
            f"the {kind.called} of {repository.name}@{subject.digest} is attached to another image, {other}"
        )
    return [each for each in stated.get("layers", []) if each.get("mediaType") == kind.media_type]
