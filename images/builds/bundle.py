"""Bundles: one folder with all downloads of a build, and the build from it.

``bundle.json`` names every file with its sha256, so that one that was damaged on the way is told before a build starts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from images.catalog.variant import Variant
from images.context import context, render
from images.engine.base_image import present
from images.engine.client import Engine
from images.engine.daemon import daemon
from images.errors import BundleBroken
from images.host import digests
from images.host.process import run
from images.pins import apt, locks, torch_wheels

MANIFEST = "bundle.json"
FORMAT = 1
BASE, WHEELS, DEBS, GIT = "base.tar", "wheels", "debs", "git"  # what lies in it
PLACES = {WHEELS: "wheelhouse", DEBS: "debs", GIT: "git"}  # and where a context has it
ALIAS = "verljob-bundle-base"  # a base's name in the archive: to load it moves no tag of this machine
NAMED = 5  # of what is wrong, by name


@dataclass(frozen=True)
class Bundle:
    """What bundle.json says; ``inputs`` are what the catalog, the templates and the lock were."""

    folder: Path
    variant: str
    inputs: Mapping[str, str]
    base: Mapping[str, str]
    files: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> Bundle:
        """A bundle whose files are all there and as they were written; BundleBroken names those that are not."""
        try:
            told: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError) as unreadable:
            raise BundleBroken(
                f"{folder / MANIFEST} cannot be read: {unreadable}; {folder} is no bundle"
            ) from unreadable
        if told.pop("format", None) != FORMAT:
            raise BundleBroken(f"{folder / MANIFEST} is of another format than {FORMAT}: make it with this checkout")
        bundle = cls(folder=folder, **told)
        if wrong := bundle._wrong():
            more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
            raise BundleBroken(f"{folder}: {'; '.join(wrong[:NAMED])}{more}. Copy the bundle again, or make it anew.")
        return bundle

    def write(self) -> Path:
        """Leave bundle.json."""
        told = {"format": FORMAT, **asdict(self), "folder": None}
        del told["folder"]
        path = self.folder / MANIFEST
        path.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return path

    def refuse_another(self, variant: Variant) -> None:
        """BundleBroken where it was made for another variant, or from another catalog, template or lock."""
        if self.variant != variant.name:
            raise BundleBroken(f"{self.folder} is a bundle of {self.variant}, not of {variant.name}")
        now = inputs(variant.released)
        if changed := sorted(name for name in now if self.inputs.get(name) != now[name]):
            raise BundleBroken(
                f"{self.folder} was made from another {' and '.join(changed)} of {variant.name} than this checkout "
                f"has: use the checkout that made it, or `invoke image.bundle --variant {variant.name}` again"
            )

    @property
    def base_bytes(self) -> int:
        """What the base takes when it is loaded: its archive is not compressed."""
        return (self.folder / BASE).stat().st_size

    def ready_base(self, engine: Engine) -> str:
        """A reference by which the engine has the bundle's base: its own name, unless that is another image here."""
        alias = f"{ALIAS}:{self.base['id'].rpartition(':')[2][:12]}"
        if not present(self.base["id"]):
            run([engine.client, "load", "--input", str(self.folder / BASE)])
        image = daemon().images.get(self.base["id"])
        for reference in (self.base["reference"], alias):
            if not present(reference):
                image.tag(reference)
            if daemon().images.get(reference).id == self.base["id"]:
                return reference
        raise BundleBroken(f"{alias} is another image here than the bundle's base {self.base['id']}: remove that tag")

    def lay_out(self, staged: Path) -> None:
        """Put wheels, packages and sources where the Dockerfile mounts them from."""
        for name in self.files:
            place, _, rest = name.partition("/")
            if place in PLACES:
                target = staged / PLACES[place] / rest
                target.parent.mkdir(parents=True, exist_ok=True)
                context.link(self.folder / name, target)

    def _wrong(self) -> list[str]:
        there = {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()} - {MANIFEST}
        missing = [f"{name} is missing" for name in sorted({*self.files} - there)]
        strange = [f"{name} does not belong to it" for name in sorted(there - {*self.files})]
        now = hashes(self.folder, sorted(there & {*self.files}))
        return missing + strange + [f"{name} is damaged" for name in now if now[name] != self.files[name]]


def inputs(variant: Variant) -> dict[str, str]:
    """What decides which files a build of this cell downloads, each as a hash."""
    torch = variant.installs.get("torch", "")
    apart = [
        torch_wheels.pinned(torch, variant.python, variant.machine) if torch else [],
        *map(asdict, variant.replaces.values()),
    ]
    tools = (render.TEMPLATES / "build-tools.txt").read_text(encoding="utf-8")
    sources = json.dumps([render.bundle(variant), torch, apart, apt.text(variant), tools], sort_keys=True)
    locked = locks.path(variant)
    return {
        "set of sources": hashlib.sha256(sources.encode()).hexdigest(),
        "lock": digests.sha256_file(locked) if locked.is_file() else "",
    }


def hashes(folder: Path, names: list[str]) -> dict[str, str]:
    """The sha256 of files below a folder; several are read at once."""
    with ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(lambda name: digests.sha256_file(folder / name), names)))
