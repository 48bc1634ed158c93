"""Finds and removes old images of this toolkit and its part of the engine's build cache.

An image is ours by its label ``verljob.variant``, a record of the cache by words that only steps of ours have, or by
what it was built upon. The engine's other records (build contexts above all) tell nobody whose they are, and stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from docker.models.images import Image

from images.catalog.catalog import Catalog
from images.context.dockerfile import parse_steps
from images.context.render import dockerfile
from images.engine.client import choose
from images.engine.daemon import daemon
from images.host.process import run
from images.report import record

LABEL = "verljob.variant"
# Words that only our own steps have, of whatever version of a template.
MARKS = ("/opt/verljob", "/steps/guard.py", "/apt.sh /apt.txt", "verljob.pth")


@dataclass(frozen=True)
class Old:
    """Images by ID with what they are called and take, and records of the cache by ID with what they take."""

    images: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    cache: Mapping[str, int] = field(default_factory=dict)


def find(catalog: Catalog, label: str = LABEL) -> Old:
    """What is old here; images that a container uses, and records in use, are not."""
    current = {name for variant in catalog.variants.values() for name in catalog.names(variant)}
    used = {
        container.attrs["ImageID"] for container in daemon().containers.list(all=True, ignore_removed=True, sparse=True)
    }
    images = daemon().images.list(filters={"label": label})
    commands = {
        _plain(step.text)
        for variant in catalog.variants.values()
        for step in parse_steps(dockerfile(variant))
        if step.name == "RUN"
    }
    return Old(old_images(images, current, used), old_cache(daemon().df().get("BuildCache") or [], commands))


def old_images(images: Iterable[Image], current: set[str], used: set[str]) -> dict[str, tuple[str, int]]:
    """Of images of ours those without a name, or with names alone that a build or push of an earlier catalog gave.

    A name that somebody chose (`--tag`) keeps its image, and so does a container. One that was pulled by digest has no
    name either: of those only what this checkout built is old.
    """
    found = {}
    for image in images:
        given = [name for name in image.tags if not _ours(name) or name.rpartition("/")[2] in current]
        pulled = not image.tags and image.attrs.get("RepoDigests") and not record.read(str(image.id))
        if not (given or pulled or image.id in used):
            found[str(image.id)] = (", ".join(image.tags) or "without a name", int(image.attrs["Size"]))
    return found


def _ours(name: str) -> bool:
    """Whether a name is one that `invoke build` or `push` makes: verl.PLATFORM:VERL-VARIANT."""
    return bool(re.fullmatch(r"(.+/)?verl\.[a-z]+:(latest|\d[\w.]*-[\w.-]+)", name))


def old_cache(records: Sequence[Mapping[str, Any]], commands: set[str]) -> dict[str, int]:
    """Of the cache's records old steps of ours and what was built on them; what is in use or an image's stays."""
    by_id = {str(each["ID"]): each for each in records}
    old = {key for key, each in by_id.items() if _is_old(each["Description"], commands)}
    while more := {key for key, each in by_id.items() if key not in old and each.get("Parent") in old}:
        old |= more
    return {key: int(by_id[key]["Size"]) for key in sorted(old) if not (by_id[key]["InUse"] or by_id[key]["Shared"])}


def _is_old(description: str, commands: set[str]) -> bool:
    """Whether a record is a step of ours and of no template of now."""
    said = _plain(description)
    return any(mark in said for mark in MARKS) and not any(command in said for command in commands)


def _plain(text: str) -> str:
    return " ".join(text.split())


def shown(old: Old) -> str:
    """What `invoke image.prune` prints."""
    lines = [f"{size / 1e9:6.2f} GB  {name}  {key.rpartition(':')[2][:12]}" for key, (name, size) in old.images.items()]
    if old.cache:
        lines.append(f"{sum(old.cache.values()) / 1e9:6.2f} GB  build cache, {len(old.cache)} records")
    if not lines:
        return "Nothing here is old."
    return "\n".join(
        [*lines, "Layers that images share count for each. `invoke image.prune --yes` removes all of these."]
    )


def remove(old: Old) -> str:
    """Remove what was found, and say what became of it."""
    for key, (name, _) in old.images.items():
        for each in daemon().images.get(key).tags:
            daemon().images.remove(each, noprune=False)
        if name == "without a name":
            daemon().images.remove(key)
    client = choose().client
    for key in old.cache:
        run([client, "builder", "prune", "--force", "--all", "--filter", f"id={key}"])
    return f"Removed {len(old.images)} images and {len(old.cache)} records of the build cache."
