"""Referrers of an image: attachments stored in its repository under tags made of its digest, as cosign does.

Registries older than OCI 1.1 cannot list an image's referrers, hence the tag. The manifest also names its ``subject``,
so a registry with OCI 1.1 lists it as a referrer.
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
    """A kind of attachment: suffix of its tag, media type of its layer, artifact type, suffix of its file, label."""

    suffix: str
    media_type: str
    artifact_type: str
    file_suffix: str
    label: str


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
    """``sha256-<hex>.<suffix>``."""
    return f"{digest.replace(':', '-')}.{kind.suffix}"


def find_image(repository: Repository, reference: str) -> Manifest:
    """Return the manifest of a tag or digest: an image, or an index of one image, as newer engines push it."""
    manifest = repository.manifest(reference)
    if manifest is None:
        raise NotTrusted(f"{repository.name} has no {reference}; push it with `invoke push`")
    if manifest.media_type in INDEXES and len(_images(manifest)) != 1:
        raise NotTrusted(f"{repository.name} has images of several platforms under {reference}; pass the digest of one")
    return manifest


def _images(index: Manifest) -> list[str]:
    """Digests of the images of an index, without the attestations that a builder adds."""
    entries = index.parsed.get("manifests", [])
    return [entry["digest"] for entry in entries if entry.get("platform", {}).get("architecture") != "unknown"]


def image_manifest(repository: Repository, subject: Manifest) -> Manifest:
    """Return the manifest of the image itself: the subject, or the only image of an index."""
    if subject.media_type not in INDEXES:
        return subject
    return find_image(repository, _images(subject)[0])


def image_ids(repository: Repository, subject: Manifest) -> set[str]:
    """IDs that an engine may give this image: its configuration's digest, or the manifest's with containerd's store."""
    images: list[Manifest | None] = [subject]
    if subject.media_type in INDEXES:
        images = [repository.manifest(digest) for digest in _images(subject)]
    return {subject.digest} | {image.parsed.get("config", {}).get("digest", "") for image in images if image}


def attach(
    repository: Repository,
    subject: Manifest,
    kind: Kind,
    content: bytes,
    *,
    annotations: Mapping[str, str] | None = None,
    kept: Sequence[Mapping[str, Any]] = (),
) -> Manifest:
    """Attach ``content`` to the subject in place of the attachment of this kind; bytes already present are not sent.

    ``annotations`` go to the layer of ``content``; ``kept`` are descriptors of attachments that stay beside it.
    """
    layer = repository.put_blob(content, kind.media_type)
    return repository.put_manifest(
        tag(subject.digest, kind),
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": kind.artifact_type,
            "config": repository.put_blob(b"{}", EMPTY),
            "layers": [*map(dict, kept), {**layer, "annotations": dict(annotations)} if annotations else layer],
            "subject": subject.descriptor,
        },
    )


def fetch(repository: Repository, subject: Manifest, kind: Kind) -> bytes:
    """Return the subject's only attachment of a kind; raise NotTrusted if there is none, or another image's."""
    found = layers(repository, subject, kind)
    if len(found) != 1:
        count = f"{len(found)} attachments of kind {kind.label}" if found else f"no {kind.label}"
        raise NotTrusted(f"{repository.name}@{subject.digest} has {count}; `invoke push` attaches it")
    return repository.blob(found[0]["digest"])


def layers(repository: Repository, subject: Manifest, kind: Kind) -> list[dict[str, Any]]:
    """Return descriptors of the subject's attachments of a kind; raise NotTrusted if they are another image's."""
    manifest = repository.manifest(tag(subject.digest, kind))
    if manifest is None:
        return []
    attached = manifest.parsed
    if (other := attached.get("subject", subject.descriptor).get("digest")) != subject.digest:
        raise NotTrusted(
            f"the {kind.label} of {repository.name}@{subject.digest} is attached to another image, {other}"
        )
    return [layer for layer in attached.get("layers", []) if layer.get("mediaType") == kind.media_type]
