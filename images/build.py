"""Building one variant: base, context, secrets, then one `docker build`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from images import base, context, record, wheels
from images.bundle import Bundle
from images.catalog import Catalog
from images.compatibility import refuse_impossible
from images.engine import Engine, choose, daemon
from images.errors import BundleBroken
from images.process import stream
from images.site import Site
from images.spec import ImageSpec

OCI = "org.opencontainers.image"


def build(
    spec: ImageSpec,
    site: Site,
    tags: Sequence[str],
    *,
    from_base: str = "",
    lock: Path | None = None,
    bundle: Bundle | None = None,
) -> str:
    """Build, give the image ``tags``, and return its ID; the build's progress goes to standard error.

    ``from_base`` takes the place of the catalog's base, ``lock`` of the variant's own lock. A ``bundle`` takes the
    place of every download, ``site`` then tells nothing, and the steps have no network.
    """
    refuse_impossible(spec)
    daemon()
    engine, started = choose(), record.now()
    if bundle:
        bundle.refuse_another(spec)
        if from_base:
            raise BundleBroken(f"the bundle {bundle.folder} has a base of its own: leave out {from_base}")
        site = Site(offline=True)
    reference = bundle.ready_base(engine) if bundle else base_of(spec, engine, from_base, site)
    with context.alone(spec), tempfile.TemporaryDirectory(prefix="verljob-build-") as private:
        folder = context.stage(spec, reference, [] if bundle else torch_of(spec, site), lock)
        if bundle:
            bundle.lay_out(folder)
        secrets = site.secrets(spec, Path(private))
        network = ["--network", "none"] if site.offline else []
        stream(argv(engine, reference, tags, folder, [*network, *secrets]), engine.environment)
        image_id = str(daemon().images.get(tags[0]).id)
        if not record.read(image_id):
            record.write(image_id, record.predicate(spec, engine, reference, folder, started))
    return image_id


def names(spec: ImageSpec, catalog: Catalog, tag: str = "") -> list[str]:
    """The references that a build gives its image: its own tag, and ``latest`` for the platform's default variant."""
    if tag:
        return [tag if ":" in tag else f"{spec.name}:{tag}"]
    latest = [f"{spec.name}:latest"] if catalog.is_default(spec) else []
    return [f"{spec.name}:{spec.tag}", *latest]


def argv(engine: Engine, reference: str, tags: Sequence[str], folder: Path, more: Sequence[str]) -> list[str]:
    """The build command. Facts of this build are labels given here, since an ARG would bust the layers below it."""
    manifest = json.loads((folder / "toolkit/image.json").read_text(encoding="utf-8"))
    flags = [word for name in tags for word in ("--tag", name)]
    for name, value in labels(reference, manifest["toolkit"]).items():
        flags += ["--label", f"{name}={value}"]
    return engine.build_argv([*flags, "--build-arg", f"BASE={reference}", *more, str(folder)])


def labels(reference: str, toolkit: str) -> dict[str, str]:
    """What a template cannot know of its image: the base that it stands on, and the toolkit in it."""
    base_image = daemon().images.get(reference)
    told = {
        "verljob.base": reference,
        "verljob.base.id": str(base_image.id),
        "verljob.toolkit": toolkit,
        f"{OCI}.base.name": reference,
    }
    for pulled in (base_image.attrs.get("RepoDigests") or [])[:1]:
        told[f"{OCI}.base.digest"] = pulled.partition("@")[2]
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):  # any other time would make each build another image
        told[f"{OCI}.created"] = datetime.fromtimestamp(int(epoch), timezone.utc).isoformat()
    return told


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
