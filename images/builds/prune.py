"""Finds and removes old images of this toolkit and its part of the engine's build cache.

An image of ours has the label ``verljob.variant``. A cache record of ours has a description that only our steps have,
or such a record as its parent. All other records (mostly build contexts) have no owner, and are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from docker.models.images import Image

from images.catalog.catalog import Catalog
from images.context.dockerfile import parse
from images.context.render import dockerfile
from images.engine.client import choose
from images.engine.daemon import daemon
from images.host.process import run
from images.report import record

LABEL = "verljob.variant"
# Text that only our own steps have, in every version of the templates.
MARKS = ("/opt/verljob", "/steps/guard.py", "/apt.sh /apt.txt", "verljob.pth")


@dataclass(frozen=True)
class StaleItems:
    """Old images by ID with names and size, and old cache records by ID with their size."""

    images: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    cache: Mapping[str, int] = field(default_factory=dict)


def find(catalog: Catalog, label: str = LABEL) -> StaleItems:
    """Find old images and cache records; those in use, also by a container, are not old."""
    current = {name for variant in catalog.variants.values() for name in catalog.names(variant)}
    used = {
        container.attrs["ImageID"] for container in daemon().containers.list(all=True, ignore_removed=True, sparse=True)
    }
    images = daemon().images.list(filters={"label": label})
    commands = {
        _plain(step.arguments)
        for variant in catalog.variants.values()
        for step in parse(dockerfile(variant))
        if step.name == "RUN"
    }
    return StaleItems(old_images(images, current, used), old_cache(daemon().df().get("BuildCache") or [], commands))


def old_images(images: Iterable[Image], current: set[str], used: set[str]) -> dict[str, tuple[str, int]]:
    """Return our images that have no name, or only names from builds and pushes of an earlier catalog.

    A name from `--tag` keeps its image, and so does a container. An image that was pulled by digest has no name either:
    it is old only if this checkout built it.
    """
    found = {}
    for image in images:
        kept = [name for name in image.tags if not _is_build_name(name) or _without_gpus(name) in current]
        pulled = not image.tags and image.attrs.get("RepoDigests") and not record.read(str(image.id))
        if not (kept or pulled or image.id in used):
            found[str(image.id)] = (", ".join(image.tags) or "without a name", int(image.attrs["Size"]))
    return found


def _is_build_name(name: str) -> bool:
    """Whether `invoke build` or `push` makes such a name: verl.PLATFORM:VERL-VARIANT."""
    return bool(re.fullmatch(r"(.+/)?verl\.[a-z]+:(latest|\d[\w.]*-[\w.-]+)", name))


def _without_gpus(name: str) -> str:
    """A name without its registry and the GPU architectures of `invoke build --gpus`."""
    return re.sub(r"(-gfx[0-9a-f]+)+$", "", name.rpartition("/")[2])


def old_cache(records: Sequence[Mapping[str, Any]], commands: set[str]) -> dict[str, int]:
    """Return our old steps in the cache and all records built on them, except those in use or part of an image."""
    by_id = {str(each["ID"]): each for each in records}
    old = with_children(records, {key for key, each in by_id.items() if _is_old(each["Description"], commands)})
    return {key: int(by_id[key]["Size"]) for key in sorted(old) if not (by_id[key]["InUse"] or by_id[key]["Shared"])}


def with_children(records: Sequence[Mapping[str, Any]], keys: set[str]) -> set[str]:
    """Return the IDs of records and of all records built on them."""
    found, new = set(keys), set(keys)
    while new:
        new = {str(each["ID"]) for each in records if new & _parents(each)} - found
        found |= new
    return found


def _parents(each: Mapping[str, Any]) -> set[str]:
    """IDs of a record's parents: `Parents` since API 1.42 (Docker 23.0), which leaves `Parent` out."""
    return {str(key) for key in (*(each.get("Parents") or ()), each.get("Parent")) if key}


def remove_cache(keys: Iterable[str]) -> None:
    """Remove records of the build cache. The engine keeps one, without an error, while it has others built on it."""
    left, before = set(keys), set[str]()
    while left and left != before:
        before = left
        for key in left:
            run([choose().client, "builder", "prune", "--force", "--all", "--filter", f"id={key}"])
        left = left & {str(each["ID"]) for each in daemon().df().get("BuildCache") or []}


def _is_old(description: str, commands: set[str]) -> bool:
    """Whether a record is a step of ours that is in no current template."""
    text = _plain(description)
    return any(mark in text for mark in MARKS) and not any(command in text for command in commands)


def _plain(text: str) -> str:
    return " ".join(text.split())


def table(old: StaleItems) -> str:
    """Return the output of `invoke image.prune`."""
    lines = [f"{size / 1e9:6.2f} GB  {name}  {key.rpartition(':')[2][:12]}" for key, (name, size) in old.images.items()]
    if old.cache:
        lines.append(f"{sum(old.cache.values()) / 1e9:6.2f} GB  build cache, {len(old.cache)} records")
    if not lines:
        return "No old images or cache records."
    return "\n".join(
        [*lines, "Shared layers are counted for each image. `invoke image.prune --yes` removes all of these."]
    )


def remove(old: StaleItems) -> str:
    """Remove old images and cache records, and return a summary."""
    for key, (name, _) in old.images.items():
        for each in daemon().images.get(key).tags:
            daemon().images.remove(each, noprune=False)
        if name == "without a name":
            daemon().images.remove(key)
    remove_cache(old.cache)
    return f"Removed {len(old.images)} images and {len(old.cache)} records of the build cache."
