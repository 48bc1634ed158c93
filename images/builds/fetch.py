"""Fetches the inputs of a build that are not in this checkout: its base image and torch's wheel."""

from __future__ import annotations

from pathlib import Path

from images.builds import disk
from images.builds.site import Site
from images.catalog.variant import Variant
from images.context import context
from images.engine import base_image
from images.engine.client import Engine
from images.engine.daemon import Inspected, get
from images.errors import BaseUnreachable
from images.pins import torch_wheels

Base = tuple[str, Inspected]  # its reference in the daemon, and the image


def fetch_torch(variant: Variant, site: Site) -> list[Path]:
    """Return the wheel of torch, downloaded if it is not cached; nothing if the base or the lock has torch."""
    if not variant.cpu_torch:
        return []
    version, cache = variant.cpu_torch, context.STAGED / "wheels"
    environment = site.pip_environment()
    return [
        torch_wheels.torch_cpu(version, variant.python, cache, site.wheelhouse, environment, machine=variant.machine)
    ]


def fetch_base(variant: Variant, engine: Engine, base: str, site: Site, *, last: str = "") -> Base:
    """Return the base (``base``, else the catalog's), pulled or made if the daemon does not have it.

    Given ``last``, the tag of an earlier build, raise DiskTooSmall if base and build would not fit.
    """
    if local := local_base(variant, base, site):
        return local
    if last:
        mirrored = (site.mirrored(variant.base_pinned), site.mirrored(variant.base))
        known = base or base_image.first_present(*mirrored, variant.base, variant.base_made)
        if not base_image.present(known):
            disk.require_for_build(variant, last, pulled=known)
    reference = _pull_base(variant, engine, base, site)
    return reference, get(reference)


def local_base(variant: Variant, base: str, site: Site) -> Base | None:
    """Return the base if the daemon has it."""
    if base:
        references = [base]
    elif variant.base_made:
        references = [site.mirrored(variant.base), variant.base_made]
    else:
        references = [site.mirrored(variant.base_pinned)]
    return next(((each, image) for each in references if (image := base_image.find(each))), None)


def _pull_base(variant: Variant, engine: Engine, base: str, site: Site) -> str:
    if variant.base_made and not base:
        mirror = site.apt_mirror or variant.apt_mirror
        return base_image.ensure(site.mirrored(variant.base), variant.base_made, mirror, engine)
    reference = base or site.mirrored(variant.base_pinned)
    try:
        base_image.pull(engine, reference)
    except BaseUnreachable:
        # A base that was loaded from an archive has its tag and no digest.
        loaded = base_image.first_present(site.mirrored(variant.base), variant.base)
        if base or not base_image.present(loaded):
            raise
        return loaded
    return reference
