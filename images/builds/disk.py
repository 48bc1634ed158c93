"""Disk space checks before builds and exports."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from images.catalog.variant import Variant
from images.engine.daemon import find, storage
from images.errors import DiskTooSmall, RegistryFailed

# Of verl.cpu (docs/images.md, "What takes the space"): what verl pulls, and torch's CPU build.
PACKAGES_BYTES, TORCH_BYTES = 1_060_000_000, 580_000_000
PEAK = 1.2  # of what a build leaves, for downloads and what a step removes again: an allowance, not a measurement
UNPACKED = 2.9  # of a layer's compressed size: rocm/vllm, 7.5 GB compressed, takes 22 GB
Free = Callable[[Path], int]


def free_bytes(folder: Path) -> int:
    """What this account may still write where a folder is or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def require(folder: Path, needed: float, purpose: str, free: Free = free_bytes) -> None:
    """DiskTooSmall, with the numbers, where ``folder`` has less than ``needed`` bytes."""
    has = free(folder)
    if has < needed:
        raise DiskTooSmall(
            f"{purpose} takes about {needed / 1e9:.1f} GB in {folder}, and {has / 1e9:.1f} GB are free there. Make "
            "room (`invoke image.prune` shows what old images take), or use another disk."
        )


def for_build(
    variant: Variant,
    base: str,
    last: str,
    *,
    loaded: int | None = None,
    base_bytes: int | None = None,
    reproducible: bool = False,
    free: Free = free_bytes,
) -> None:
    """Refuse a build that the engine's disk has no room for; an engine on another machine is not asked.

    ``last`` names what an earlier build left: its size, else the known ones, is what the new layers are reckoned at.
    ``loaded`` is what a base takes that comes from a file; else its registry is asked. ``base_bytes`` is what one takes
    that is here, where that is known already.
    """
    root = storage()
    if not os.access(root.parent, os.X_OK) or not root.is_dir():
        return
    here = size(base) if base_bytes is None else base_bytes
    layers = reckoned_bytes(variant, last, here)
    comes = 0 if here else _pulled(base) if loaded is None else loaded
    require(root, layers + comes, f"building {variant.repository}:{variant.tag}", free)
    if reproducible:  # a second engine, with the base and the layers once more
        from images.engine.buildah import BUILDAH_STORE

        require(
            BUILDAH_STORE, layers + (here or comes), f"building {variant.repository}:{variant.tag} with buildah", free
        )


def reckoned_bytes(variant: Variant, last: str, base_bytes: int) -> float:
    """What a build of ``last`` anew takes at its highest, above its base."""
    return PEAK * max(size(last) - base_bytes, _known(variant))


def size(reference: str) -> int:
    """What an image of this machine takes; nothing where there is none."""
    found = find(reference)
    return int(found.attrs["Size"]) if found else 0


def _known(variant: Variant) -> int:
    return PACKAGES_BYTES + (TORCH_BYTES if "torch" in variant.installs else 0)


def _pulled(reference: str) -> float:
    """What an image takes while it is pulled, by its registry's manifest; 0 where no registry tells."""
    from images.registry.client import Repository  # which loads docker-py and requests

    repository, tag = Repository.parse(reference)
    try:
        with repository:
            found = repository.image_manifest(tag)
    except RegistryFailed:  # the pull will say it, or debootstrap makes the base
        return 0
    return sum(layer["size"] for layer in found.parsed["layers"]) * (1 + UNPACKED) if found else 0
