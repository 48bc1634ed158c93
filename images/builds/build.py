"""Builds one variant: compatibility rules, base, context, secrets, then `docker build` or buildah.

Nothing is built where its inputs have not changed; what was built leaves a report and a record.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from images.builds import disk
from images.builds.builder import BuildRun
from images.builds.site import Site
from images.catalog import compatibility
from images.catalog.variant import Variant
from images.context import context, inputs, labels
from images.context.verl_source import Source
from images.engine import base_image, buildah
from images.engine.client import Engine, choose
from images.engine.daemon import Inspected, daemon_version, get
from images.errors import BaseUnreachable, BundleBroken
from images.host.locking import alone
from images.host.process import Commands
from images.pins import torch_wheels
from images.report import store
from images.report.progress import PlainLog, Progress

if TYPE_CHECKING:
    from images.builds.bundle import Bundle

Base = tuple[str, Inspected]  # by which name, and which image that is


def build(
    variant: Variant,
    site: Site,
    tags: Sequence[str],
    *,
    from_base: str = "",
    lock: Path | None = None,
    bundle: Bundle | None = None,
    verl: Source | None = None,
    reproducible: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    running: Commands | None = None,
) -> str:
    """Build, give the image ``tags``, and return its ID; nothing is built where its inputs have not changed.

    ``from_base`` replaces the catalog's base, ``lock`` the variant's own lock; ``verl`` is the source of verl that the
    variant has in place of a release. A ``bundle`` replaces every download: ``site`` is not used and the steps have no
    network. With ``reproducible`` buildah builds, and every build of the same inputs has the same ID. ``force`` builds
    even where nothing changed. The report goes to .build/reports.
    """
    compatibility.refuse_impossible(variant)
    compatibility.refuse_engine(variant, daemon_version())
    engine, progress = choose(), progress or PlainLog()
    builder = buildah.builder() if reproducible else inputs.by_docker(engine)
    if bundle:
        refuse_unfit(bundle, variant, from_base)
        site, (reference, below) = Site(offline=True), _carried_base(bundle, variant, engine, last=tags[0])
    else:
        reference, below = _base(variant, engine, from_base, site, last=tags[0])
    with alone(variant.name), tempfile.TemporaryDirectory(prefix="verljob-build-") as private:
        told: dict[str, str | None] = {}
        folder = context.stage(variant, reference, [] if bundle else torch_of(variant, site), lock, verl, told=told)
        if bundle:
            bundle.lay_out(folder)
            told.clear()  # it is looked at anew
        facts = labels.build_labels(reference, below, folder)
        making = BuildRun(variant, engine, reference, below, tags, folder, facts, builder, told)
        if not force and (image := inputs.find(making.key)):
            return _unchanged(image, tags, progress)
        disk.for_build(variant, reference, tags[0], base_bytes=below.attrs["Size"], reproducible=reproducible)
        words = [*(["--network", "none"] if site.offline else []), *site.secrets(variant, Path(private))]
        make = making.by_buildah if reproducible else making.by_docker
        return make(words, progress, running or Commands())


def refuse_unfit(bundle: Bundle, variant: Variant, from_base: str) -> None:
    """BundleBroken where a bundle is not one for this build."""
    bundle.refuse_another(variant)
    if from_base:
        raise BundleBroken(f"the bundle {bundle.folder} has a base of its own: leave out {from_base}")


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
    """A reference by which this machine has the base: ``asked``, or the catalog's, from where the site has it."""
    if there := _at_hand(variant, asked, site):
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


def _at_hand(variant: Variant, asked: str, site: Site) -> Base | None:
    """What ``base_of`` answers where nothing has to be fetched; nothing where something has."""
    made = [site.mirrored(variant.base), variant.base_made] if variant.base_made else []
    for reference in [asked] if asked else made or [site.mirrored(variant.base_pinned)]:
        if image := base_image.find(reference):
            return reference, image
    return None


def _base(variant: Variant, engine: Engine, asked: str, site: Site, *, last: str) -> Base:
    """The base of a build; DiskTooSmall where it is not here and there is no room for it and what is built on it."""
    if there := _at_hand(variant, asked, site):
        return there
    wanted = asked or base_image.known(
        site.mirrored(variant.base_pinned), site.mirrored(variant.base), variant.base, variant.base_made
    )
    if not base_image.present(wanted):
        disk.for_build(variant, wanted, last)
    reference = base_of(variant, engine, asked, site)
    return reference, get(reference)


def _carried_base(bundle: Bundle, variant: Variant, engine: Engine, *, last: str) -> Base:
    """The same of a bundle's base."""
    if not base_image.present(bundle.base["id"]):
        disk.for_build(variant, bundle.base["id"], last, loaded=bundle.base_bytes)
    reference = bundle.ready_base(engine)
    return reference, get(reference)


def _unchanged(image: Inspected, tags: Sequence[str], progress: Progress) -> str:
    """Give an image that is what a build would make the names that it lacks, and return its ID."""
    for tag in tags:
        if tag not in image.tags:
            image.tag(tag)
    store.renew(tags[0], image.id)
    progress.end(tags[0], f"unchanged, {image.id}")
    return image.id
