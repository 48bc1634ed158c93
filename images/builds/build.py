"""Builds one variant: compatibility rules, a plan, then docker or buildah where an input has changed.

A build leaves a report and a provenance record.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from images.builds import builder, disk, fetch
from images.builds.bundle import Bundle
from images.builds.plan import resolve
from images.builds.site import Site
from images.catalog import compatibility
from images.catalog.variant import Variant
from images.context import inputs
from images.context.verl_source import Source
from images.engine.daemon import Inspected, daemon_version
from images.host.locking import alone
from images.host.process import Commands
from images.report import store
from images.report.progress import PlainLog, Progress


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
    compatibility.check_variant(variant)
    compatibility.check_engine(variant, daemon_version())
    progress = progress or PlainLog()
    site = Site(offline=True) if bundle else site
    with alone(variant.name), tempfile.TemporaryDirectory(prefix="verljob-build-") as private:
        plan = resolve(
            variant, site, tags, from_base=from_base, lock=lock, bundle=bundle, verl=verl, reproducible=reproducible
        )
        if not force and (image := inputs.find(plan.key)):
            return _unchanged(image, tags, progress)
        size = plan.base.attrs["Size"]
        disk.for_build(variant, plan.reference, tags[0], base_bytes=size, reproducible=reproducible)
        site_words = [*(["--network", "none"] if site.offline else []), *site.secrets(variant, Path(private))]
        return builder.run(plan, site_words, progress, running or Commands()).image.id


def show_plan(
    variant: Variant, site: Site, tags: Sequence[str], *, from_base: str = "", verl: Source | None = None
) -> str:
    """The plan of a build as text; the base is not fetched for it."""
    compatibility.check_variant(variant)
    compatibility.check_engine(variant, daemon_version())
    if not fetch.at_hand(variant, from_base, site):
        return f"variant  {variant.name}: {variant.summary}\nbase     {from_base or variant.base_pinned}, to be fetched"
    with alone(variant.name):
        return resolve(variant, site, tags, from_base=from_base, verl=verl).text()


def _unchanged(image: Inspected, tags: Sequence[str], progress: Progress) -> str:
    """Give an image that is what a build would make the names that it lacks, and return its ID."""
    for tag in tags:
        if tag not in image.tags:
            image.tag(tag)
    store.renew(tags[0], image.id)
    progress.end(tags[0], f"unchanged, {image.id}")
    return image.id
