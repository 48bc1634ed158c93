"""Fetches what a build needs from elsewhere: its base image and torch's wheel."""

from __future__ import annotations

from pathlib import Path

from images.builds import disk
from images.builds.bundle import Bundle
from images.builds.site import Site
from images.catalog.variant import Variant
from images.context import context
from images.engine import base_image
from images.engine.client import Engine
from images.engine.daemon import Inspected, get
from images.errors import BaseUnreachable
from images.pins import torch_wheels

Base = tuple[str, Inspected]  # its reference on this machine, and the image


def torch_of(variant: Variant, site: Site) -> list[Path]:
    """The wheel of torch, where the base does not bring it."""
    if "torch" not in variant.installs:
        return []
    cache = context.STAGED / "wheels"
    environment = site.pip_environment()
    return [
        torch_wheels.torch_cpu(
            variant.installs["torch"], variant.python, cache, site.wheelhouse, environment, machine=variant.machine
        )
    ]


def base_of(variant: Variant, engine: Engine, asked: str, site: Site) -> str:
    """The reference of the base on this machine: ``asked``, else the catalog's; fetched where it is missing."""
    if there := at_hand(variant, asked, site):
        return there[0]
    if variant.base_made and not asked:
        return base_image.ensure(
            site.mirrored(variant.base), variant.base_made, site.apt_mirror or variant.apt_mirror, engine
        )
    reference = asked or site.mirrored(variant.base_pinned)
    try:
        base_image.pull(engine, reference)
    except BaseUnreachable:
        # One that was loaded from an archive has its tag and no digest.
        if asked or not base_image.present(loaded := base_image.known(site.mirrored(variant.base), variant.base)):
            raise
        return loaded
    return reference


def at_hand(variant: Variant, asked: str, site: Site) -> Base | None:
    """The base as ``base_of`` returns it, if nothing has to be fetched for it."""
    made = [site.mirrored(variant.base), variant.base_made] if variant.base_made else []
    for reference in [asked] if asked else made or [site.mirrored(variant.base_pinned)]:
        if image := base_image.find(reference):
            return reference, image
    return None


def fetch_base(variant: Variant, engine: Engine, asked: str, site: Site, *, last: str) -> Base:
    """The base of a build, pulled or made where it is missing; DiskTooSmall where there is no room for it."""
    if there := at_hand(variant, asked, site):
        return there
    wanted = asked or base_image.known(
        site.mirrored(variant.base_pinned), site.mirrored(variant.base), variant.base, variant.base_made
    )
    if not base_image.present(wanted):
        disk.for_build(variant, wanted, last)
    reference = base_of(variant, engine, asked, site)
    return reference, get(reference)


def carried_base(bundle: Bundle, variant: Variant, engine: Engine, *, last: str) -> Base:
    """The base of a bundle, loaded into the engine; DiskTooSmall where there is no room for it."""
    if not base_image.present(bundle.base["id"]):
        disk.for_build(variant, bundle.base["id"], last, loaded=bundle.base_bytes)
    reference = bundle.ready_base(engine)
    return reference, get(reference)
