"""Disk space checks before builds and exports."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from images.catalog.variant import Variant
from images.engine import buildah
from images.engine.daemon import data_root, find
from images.errors import DiskTooSmall, RegistryFailed
from images.registry.client import Repository

# Of verl.cpu (docs/images.md, "What uses the space"): the packages that verl needs, and torch's CPU build.
PACKAGES_BYTES, TORCH_BYTES = 1_060_000_000, 580_000_000
WHEELS_BYTES = 11_500_000_000  # all layers of cu130-wheels
PEAK = 1.2  # of a build's size, for downloads and files that a later step removes: an allowance, not a measurement
UNPACKED = 2.9  # of a layer's compressed size: rocm/vllm, 7.5 GB compressed, takes 22 GB


def free_bytes(folder: Path) -> int:
    """Free bytes for this account on the file system of ``folder`` (which may not exist yet)."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def require(folder: Path, needed: float, purpose: str) -> None:
    """Raise DiskTooSmall, with the numbers, if ``folder`` has less than ``needed`` bytes."""
    available = free_bytes(folder)
    if available < needed:
        raise DiskTooSmall(
            f"{purpose} takes about {needed / 1e9:.1f} GB in {folder}, and {available / 1e9:.1f} GB are free. Make "
            "room (`invoke image.prune` shows the size of old images), or use another disk."
        )


def require_for_build(
    variant: Variant,
    last: str,
    base_bytes: int = 0,
    *,
    pulled: str = "",
    archive_bytes: int = 0,
    reproducible: bool = False,
) -> None:
    """Raise DiskTooSmall if the engine's disk has no room for a build; a remote engine's disk is not checked.

    ``last`` is the tag of an earlier build, whose size is the estimate for the new layers, else known sizes are.
    The base takes ``base_bytes`` now, or must be ``pulled`` by this reference, or loaded from ``archive_bytes``.
    """
    root = data_root()
    if not os.access(root.parent, os.X_OK) or not root.is_dir():
        return
    layers = estimated_bytes(variant, last, base_bytes)
    missing = archive_bytes + (_pulled_bytes(pulled) if pulled else 0)
    purpose = f"building {variant.repository}:{variant.tag}"
    require(root, layers + missing, purpose)
    if reproducible:  # a second engine, with another copy of the base and the layers
        require(buildah.BUILDAH_STORE, layers + (base_bytes or missing), f"{purpose} with buildah")


def estimated_bytes(variant: Variant, last: str, base_bytes: int) -> float:
    """Estimate the peak size of a build above its base, from the image ``last`` and from known sizes."""
    known = WHEELS_BYTES if variant.from_wheels else PACKAGES_BYTES + (TORCH_BYTES if variant.cpu_torch else 0)
    return PEAK * max(size(last) - base_bytes, known)


def size(reference: str) -> int:
    """Size of an image of the daemon; 0 if it does not exist."""
    image = find(reference)
    return int(image.attrs["Size"]) if image else 0


def _pulled_bytes(reference: str) -> float:
    """Size of an image while it is pulled, by its registry's manifest; 0 if no registry has it."""
    repository, tag = Repository.parse(reference)
    try:
        with repository:
            manifest = repository.image_manifest(tag)
    except RegistryFailed:  # the pull will report it, or debootstrap makes the base
        return 0
    return sum(layer["size"] for layer in manifest.parsed["layers"]) * (1 + UNPACKED) if manifest else 0
