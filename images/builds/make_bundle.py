"""Makes a bundle: the base image's own apt and pip download what the build would."""

from __future__ import annotations

import tempfile
from pathlib import Path

from images.builds import bundle, fetch
from images.builds.bundle import Bundle
from images.builds.site import Site
from images.catalog.compatibility import check_variant
from images.catalog.variant import Variant
from images.context import context, render
from images.engine.client import Engine, choose
from images.engine.daemon import daemon
from images.errors import BundleBroken
from images.host.locking import alone
from images.host.process import run, stream


def make(variant: Variant, site: Site, output: Path, *, from_base: str = "", lock: Path | None = None) -> Path:
    """Fill the empty folder ``output`` and return its bundle.json; the downloads' progress goes to standard error."""
    if output.exists() and any(output.iterdir()):
        raise BundleBroken(f"{output} is not empty; name a folder that is, or a new one")
    check_variant(variant)
    engine = choose()
    reference = fetch.base_of(variant, engine, from_base, site)
    with alone(variant.name):
        folder = context.stage(variant, reference, [], lock)
        (folder / "Dockerfile").write_text(render.bundle(variant), encoding="utf-8")
        with tempfile.TemporaryDirectory(prefix="verljob-bundle-") as private:
            words = ["--build-arg", f"BASE={reference}", *site.secrets(variant, Path(private)), str(folder)]
            stream(engine.output_argv(words, output), engine.environment)
    for wheel in fetch.torch_of(variant, site):
        context.link(wheel, output / bundle.WHEELS / wheel.name)
    sources(variant, site, output / bundle.GIT)
    base = {"reference": reference.partition("@")[0], "id": str(daemon().images.get(reference).id)}
    _save(engine, base["id"], output / bundle.BASE)
    names = sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())
    return Bundle(output, variant.name, bundle.inputs(variant), base, bundle.hashes(output, names)).write()


def sources(variant: Variant, site: Site, folder: Path) -> None:
    """A bare repository with the one commit for each package that is built from source."""
    for name, new in variant.replaces.items():
        git = ["git", "-C", str(folder / f"{name}.git")]
        run(["git", "init", "--quiet", "--bare", git[2]])
        run([*git, "config", "uploadpack.allowAnySHA1InWant", "true"])
        run(
            [*git, "fetch", "--quiet", "--depth", "1", new.repository, new.commit], site.git_environment(new.repository)
        )
        run([*git, "update-ref", "refs/heads/bundled", new.commit])


def _save(engine: Engine, image_id: str, archive: Path) -> None:
    """The base as an archive, under a name that no machine has for anything else."""
    alias = f"{bundle.ALIAS}:{image_id.rpartition(':')[2][:12]}"
    daemon().images.get(image_id).tag(alias)
    run([engine.client, "save", "--output", str(archive), alias])
    daemon().images.remove(alias)
