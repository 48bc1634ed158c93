"""Building one variant: base, context, secrets, then one `docker build`, or buildah's."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from images import base, context, disk, labels, record, reproducible, wheels
from images.bundle import Bundle
from images.catalog import Catalog
from images.compatibility import refuse_impossible
from images.engine import Engine, choose, daemon
from images.errors import BundleBroken
from images.process import stream
from images.site import Site
from images.spec import ImageSpec


def build(
    spec: ImageSpec,
    site: Site,
    tags: Sequence[str],
    *,
    from_base: str = "",
    lock: Path | None = None,
    bundle: Bundle | None = None,
    same_bytes: bool = False,
) -> str:
    """Build, give the image ``tags``, and return its ID; the build's progress goes to standard error.

    ``from_base`` takes the place of the catalog's base, ``lock`` of the variant's own lock. A ``bundle`` takes the
    place of every download, ``site`` then tells nothing, and the steps have no network. With ``same_bytes`` buildah
    builds, and the ID is that of every build of the same inputs.
    """
    refuse_impossible(spec)
    daemon()
    engine, started = choose(), record.now()
    if bundle:
        refuse_unfit(bundle, spec, from_base)
        site = Site(offline=True)
    wanted = bundle.base["id"] if bundle else from_base or base.known(site.mirrored(spec.base), spec.base_made)
    disk.for_build(spec, wanted, tags[0], loaded=bundle.base_bytes if bundle else None, same_bytes=same_bytes)
    reference = bundle.ready_base(engine) if bundle else base_of(spec, engine, from_base, site)
    with context.alone(spec), tempfile.TemporaryDirectory(prefix="verljob-build-") as private:
        folder = context.stage(spec, reference, [] if bundle else torch_of(spec, site), lock)
        if bundle:
            bundle.lay_out(folder)
        network = ["--network", "none"] if site.offline else []
        words = [*network, *site.secrets(spec, Path(private))]
        buildah = reproducible.version() if same_bytes else ""
        if buildah:
            facts = labels.flags(labels.told(reference, folder))
            reproducible.build([*facts, *words, str(folder)], reference, tags)
        else:
            stream(argv(engine, reference, tags, folder, words), engine.environment)
        image_id = str(daemon().images.get(tags[0]).id)
        if not record.read(image_id):
            record.write(image_id, record.predicate(spec, engine, reference, folder, started, buildah=buildah))
    return image_id


def names(spec: ImageSpec, catalog: Catalog, tag: str = "") -> list[str]:
    """The references that a build gives its image: its own tag, and ``latest`` for the platform's default variant."""
    if tag:
        return [tag if ":" in tag else f"{spec.name}:{tag}"]
    latest = [f"{spec.name}:latest"] if catalog.is_default(spec) else []
    return [f"{spec.name}:{spec.tag}", *latest]


def argv(engine: Engine, reference: str, tags: Sequence[str], folder: Path, more: Sequence[str]) -> list[str]:
    """The build command."""
    flags = [word for name in tags for word in ("--tag", name)]
    flags += [*labels.flags(labels.told(reference, folder)), "--build-arg", f"BASE={reference}"]
    return engine.build_argv([*flags, *more, str(folder)])


def refuse_unfit(bundle: Bundle, spec: ImageSpec, from_base: str) -> None:
    """BundleBroken where a bundle is not one for this build."""
    bundle.refuse_another(spec)
    if from_base:
        raise BundleBroken(f"the bundle {bundle.folder} has a base of its own: leave out {from_base}")


def torch_of(spec: ImageSpec, site: Site) -> list[Path]:
    """The wheel of torch, where the base does not bring it."""
    if "torch" not in spec.installs:
        return []
    cache = context.STAGED / "wheels"
    environment = site.pip_environment()
    return [wheels.torch_cpu(spec.installs["torch"], spec.python, cache, site.wheelhouse, environment)]


def base_of(spec: ImageSpec, engine: Engine, asked: str, site: Site) -> str:
    """A reference by which this machine has the base: ``asked``, or the catalog's, from where the site has it."""
    if spec.base_made and not asked:
        return base.ensure(site.mirrored(spec.base), spec.base_made, site.apt_mirror or spec.apt_mirror, engine)
    reference = asked or site.mirrored(spec.base)
    if not base.present(reference):
        base.pull(engine, reference)
    return reference
