"""Bundles: one folder with all downloads of a build, for a build without a network.

``bundle.json`` names every file with its sha256, so a file that was damaged on the way is found before a build starts.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from images.builds import disk, fetch
from images.builds.site import Site
from images.catalog.compatibility import check_variant
from images.catalog.variant import Variant
from images.context import context, render
from images.engine.base_image import present
from images.engine.client import Engine, choose
from images.engine.daemon import daemon, get
from images.errors import BundleBroken
from images.host import digests
from images.host.locking import exclusive
from images.host.process import run, stream
from images.pins import apt, locks, torch_wheels

MANIFEST = "bundle.json"
FORMAT = 1
BASE, WHEELS, DEBS, GIT = "base.tar", "wheels", "debs", "git"  # content of a bundle
CONTEXT_FOLDERS = {WHEELS: "wheelhouse", DEBS: "debs", GIT: "git"}  # its folders in a build context
ALIAS = "verljob-bundle-base"  # name of the base in the archive: loading it moves no tag of the engine
MAX_NAMED = 5  # bad files that a message names


@dataclass(frozen=True)
class Bundle:
    """The content of bundle.json; ``inputs`` are digests of the catalog, templates and lock that it was made from."""

    folder: Path
    variant: str
    inputs: Mapping[str, str]
    base: Mapping[str, str]
    files: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> Bundle:
        """Read a bundle and check all its files; BundleBroken names those that are missing or differ."""
        try:
            content: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError) as unreadable:
            raise BundleBroken(
                f"{folder / MANIFEST} cannot be read: {unreadable}; {folder} is not a bundle"
            ) from unreadable
        if content.pop("format", None) != FORMAT:
            raise BundleBroken(f"{folder / MANIFEST} has another format than {FORMAT}: make it with this checkout")
        bundle = cls(folder=folder, **content)
        if bad := bundle._bad_files():
            rest = f" and {len(bad) - MAX_NAMED} more" if len(bad) > MAX_NAMED else ""
            raise BundleBroken(f"{folder}: {'; '.join(bad[:MAX_NAMED])}{rest}. Copy the bundle again, or remake it.")
        return bundle

    def write(self) -> Path:
        """Write bundle.json."""
        content = {"format": FORMAT, **asdict(self)}
        del content["folder"]
        path = self.folder / MANIFEST
        path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return path

    def refuse_unfit(self, variant: Variant, base: str = "") -> None:
        """Raise BundleBroken if it was made for another variant, catalog, template or lock, or ``base`` is given."""
        if self.variant != variant.name:
            raise BundleBroken(f"{self.folder} is a bundle of {self.variant}, not of {variant.name}")
        now = input_digests(variant.released)
        if changed := sorted(name for name in now if self.inputs.get(name) != now[name]):
            raise BundleBroken(
                f"{self.folder} was made from another {' and '.join(changed)} of {variant.name} than this checkout "
                f"has: use the checkout that made it, or run `invoke image.bundle --variant {variant.name}` again"
            )
        if base:
            raise BundleBroken(f"the bundle {self.folder} contains its base: leave out --base {base}")

    def load_base(self, variant: Variant, engine: Engine, *, last: str) -> fetch.Base:
        """Load the base into the engine; DiskTooSmall if it would not fit.

        Its reference is its name, unless that is another image in this engine. ``last`` is as for ``fetch_base``.
        """
        base_id, alias = self.base["id"], _alias(self.base["id"])
        if not present(base_id):
            archive = self.folder / BASE  # not compressed
            disk.require_for_build(variant, last, archive_bytes=archive.stat().st_size)
            run([engine.client, "load", "--input", str(archive)])
        image = get(base_id)
        for reference in (self.base["reference"], alias):
            if not present(reference):
                image.tag(reference)
            if get(reference).id == base_id:
                return reference, image
        raise BundleBroken(f"{alias} is another image than the bundle's base {base_id}: remove that tag")

    def context_files(self) -> dict[str, Path]:
        """Return wheels, packages and sources by their path in a build context, where the Dockerfile mounts them."""
        parts = {name: name.partition("/") for name in self.files}
        return {
            f"{CONTEXT_FOLDERS[top]}/{rest}": self.folder / name
            for name, (top, _, rest) in parts.items()
            if top in CONTEXT_FOLDERS
        }

    def _bad_files(self) -> list[str]:
        """One line per file that is missing, unknown or damaged."""
        found = {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()} - {MANIFEST}
        missing = [f"{name} is missing" for name in sorted({*self.files} - found)]
        unknown = [f"{name} is not part of it" for name in sorted(found - {*self.files})]
        now = hashes(self.folder, sorted(found & {*self.files}))
        return missing + unknown + [f"{name} is damaged" for name in now if now[name] != self.files[name]]


def make(variant: Variant, site: Site, output: Path, *, base: str = "", lock: Path | None = None) -> Path:
    """Fill the empty folder ``output`` and return its bundle.json.

    The base image's own apt and pip download what the build would; their progress goes to standard error.
    """
    if output.exists() and any(output.iterdir()):
        raise BundleBroken(f"{output} is not empty; pass an empty folder or a new one")
    check_variant(variant)
    engine = choose()
    reference, image = fetch.fetch_base(variant, engine, base, site)
    with exclusive(variant.name):
        folder = context.stage(variant, reference, {}, lock).folder
        (folder / "Dockerfile").write_text(render.bundle(variant), encoding="utf-8")
        with tempfile.TemporaryDirectory(prefix="verljob-bundle-") as private:
            arguments = ["--build-arg", f"BASE={reference}", *site.secrets(variant, Path(private)), str(folder)]
            stream(engine.build_argv(arguments, output), engine.environment)
    for wheel in fetch.fetch_torch(variant, site):
        shutil.copy2(wheel, output / WHEELS / wheel.name)
    fetch_sources(variant, site, output / GIT)
    alias = _alias(image.id)
    image.tag(alias)
    run([engine.client, "save", "--output", str(output / BASE), alias])
    daemon().images.remove(alias)
    names = sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())
    content = {"reference": reference.partition("@")[0], "id": image.id}
    return Bundle(output, variant.name, input_digests(variant), content, hashes(output, names)).write()


def fetch_sources(variant: Variant, site: Site, folder: Path) -> None:
    """Make a bare repository with one commit for each package that is built from source."""
    for name, new in variant.replaces.items():
        repository = str(folder / f"{name}.git")
        git = ["git", "-C", repository]
        fetch_argv = [*git, "fetch", "--quiet", "--depth", "1", new.repository, new.commit]
        run(["git", "init", "--quiet", "--bare", repository])
        run([*git, "config", "uploadpack.allowAnySHA1InWant", "true"])
        run(fetch_argv, site.git_environment(new.repository))
        run([*git, "update-ref", "refs/heads/bundled", new.commit])


def input_digests(variant: Variant) -> dict[str, str]:
    """Digests of everything that decides which files a build of this variant downloads."""
    torch = variant.cpu_torch
    pinned = [
        torch_wheels.pinned(torch, variant.python, variant.machine) if torch else [],
        *map(asdict, variant.replaces.values()),
    ]
    tools = (render.TEMPLATES / "build-tools.txt").read_text(encoding="utf-8")
    sources = json.dumps([render.bundle(variant), torch, pinned, apt.text(variant), tools], sort_keys=True)
    lock = locks.path(variant)
    return {
        "set of sources": hashlib.sha256(sources.encode()).hexdigest(),
        "lock": digests.sha256_file(lock) if lock.is_file() else "",
    }


def hashes(folder: Path, names: list[str]) -> dict[str, str]:
    """Return the sha256 of files below a folder, read in parallel."""
    with ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(lambda name: digests.sha256_file(folder / name), names)))


def _alias(image_id: str) -> str:
    return f"{ALIAS}:{image_id.rpartition(':')[2][:12]}"
