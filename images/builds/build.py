"""Builds one variant: compatibility rules, a plan, then docker or buildah if an input changed.

A build leaves a report and a provenance record.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from images.builds import builder, disk, fetch
from images.builds.bundle import Bundle
from images.builds.site import Site
from images.catalog import compatibility
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.context import context, inputs, verl_source
from images.context.plan import BuildPlan, build_labels
from images.engine import base_image, buildah
from images.engine.client import choose
from images.engine.daemon import Inspected, daemon_version
from images.host.locking import exclusive
from images.host.process import Commands
from images.report import store
from images.report.progress import PlainLog, Progress


@dataclass(frozen=True)
class BuildRequest:
    """A variant to build, and the tags of its image.

    ``base`` replaces the catalog's base, ``lock`` the variant's own lock, ``verl`` its release of verl. A ``bundle``
    replaces every download: the site's settings are not used, and the steps have no network. If ``reproducible``,
    buildah builds, and every build of the same inputs has the same ID.
    """

    variant: Variant
    tags: Sequence[str]
    base: str = ""
    lock: Path | None = None
    verl: verl_source.Source | None = None
    bundle: Bundle | None = None
    reproducible: bool = False

    @classmethod
    def from_flags(
        cls,
        site: Site,
        *,
        platform: str,
        variant: str,
        rollout: str,
        tag: str,
        base: str,
        verl: str,
        editable: bool,
        bundle: str,
        gpus: str,
        reproducible: bool,
    ) -> BuildRequest:
        """Read the flags of `invoke build`; a bundle without a variant is built as the bundle's variant."""
        catalog = Catalog.read()
        content = Bundle.read(Path(bundle)) if bundle else None
        named = catalog.find(platform, variant or (content.variant if content else ""), rollout, gpus)
        chosen, source = verl_source.from_flags(named, verl, editable, site.git_environment)
        tags = catalog.names(chosen, tag)
        return cls(chosen, tags, base, verl=source, bundle=content, reproducible=reproducible)


def build(
    request: BuildRequest,
    site: Site,
    *,
    force: bool = False,
    progress: Progress | None = None,
    commands: Commands | None = None,
) -> str:
    """Build the image if an input changed, give it the tags, and return its ID.

    ``force`` builds even if nothing changed. The report is written to .build/reports.
    """
    _refuse_incompatible(request.variant)
    progress = progress or PlainLog()
    site = Site(offline=True) if request.bundle else site
    with exclusive(request.variant.name), tempfile.TemporaryDirectory(prefix="verljob-build-") as private:
        plan = resolve(request, site)
        if not force and (image := inputs.find_built(plan.key)):
            return _retag(image, plan.tags, progress)
        disk.require_for_build(plan.variant, plan.tags[0], plan.base.attrs["Size"], reproducible=request.reproducible)
        network = ["--network", "none"] if site.offline else []
        site_flags = [*network, *site.secrets(plan.variant, Path(private))]
        return builder.run(plan, site_flags, progress, commands or Commands()).image.id


def show_plan(request: BuildRequest, site: Site) -> str:
    """Return the plan of a build as text; the base is not fetched for it."""
    _refuse_incompatible(request.variant)
    variant, bundle = request.variant, request.bundle
    local = base_image.find(bundle.base["id"]) if bundle else fetch.local_base(variant, request.base, site)
    if not local:
        base = bundle.base["reference"] if bundle else request.base or variant.base_pinned
        return f"variant  {variant.name}: {variant.summary}\nbase     {base}, to be fetched"
    with exclusive(variant.name):
        return resolve(request, Site(offline=True) if bundle else site).text()


def resolve(request: BuildRequest, site: Site) -> BuildPlan:
    """Fetch base and wheels if they are missing, stage the context, and compute the digests of all inputs.

    Resolved once: no later step queries engine, registry or disk for a fact in the plan. The caller holds the variant's
    lock.
    """
    engine, variant, bundle = choose(), request.variant, request.bundle
    own_buildah = buildah.find() if request.reproducible else None
    builder_version = str(own_buildah) if own_buildah else inputs.docker_versions(engine)
    if bundle:
        bundle.refuse_unfit(variant, request.base)
        reference, base = bundle.load_base(variant, engine, last=request.tags[0])
        links = bundle.context_files()
    else:
        reference, base = fetch.fetch_base(variant, engine, request.base, site, last=request.tags[0])
        links = {f"wheelhouse/{wheel.name}": wheel for wheel in fetch.fetch_torch(variant, site)}
    staged = context.stage(variant, reference, links, request.lock, request.verl)
    labels = build_labels(reference, base, staged.manifest["toolkit"])
    cache = context.staged_digests(staged.folder)
    found = inputs.collect(staged.folder, base.id, builder_version, labels, staged.entries, cache=cache)
    cache.save()
    return BuildPlan(
        variant=variant,
        tags=request.tags,
        engine=engine,
        reference=reference,
        base=base,
        context=staged,
        labels=labels,
        inputs=found,
        verl=request.verl,
        buildah=own_buildah,
    )


def _refuse_incompatible(variant: Variant) -> None:
    compatibility.check_variant(variant)
    compatibility.check_engine(variant, daemon_version())


def _retag(image: Inspected, tags: Sequence[str], progress: Progress) -> str:
    """Give an unchanged image the tags that it does not have, and return its ID."""
    for tag in tags:
        if tag not in image.tags:
            image.tag(tag)
    store.restore(tags[0], image.id)
    progress.end(tags[0], f"unchanged, {image.id}")
    return image.id
