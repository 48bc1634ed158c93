"""Largest files and folders of each layer of an image.

A layer never changes, so its sizes are cached by its digest in ``.build/layers``, and a build reads only new layers.
"""

from __future__ import annotations

import heapq
import json
import os
import threading
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from images.contents import rootfs
from images.engine.daemon import Inspected
from images.host.paths import LAYER_SIZES

SHOWN = 20


@dataclass
class Folder:
    """A folder of a layer with everything below it."""

    size: int = 0
    children: dict[str, Folder | int] = field(default_factory=dict)


def largest(image: Inspected, base_layers: int, cache: Path = LAYER_SIZES) -> list[tuple[str, int]]:
    """Return the SHOWN largest files and folders of the layers above the base, with their bytes.

    Nothing, if this account cannot read the engine's storage.
    """
    folders = rootfs.layer_folders(image)
    digests = list(reversed(image.attrs["RootFS"]["Layers"]))
    own = len(digests) - base_layers
    found: list[tuple[str, int]] = []
    for folder, digest in list(zip(folders, digests))[:own]:
        found += _largest_of_layer(folder, cache / f"{digest.partition(':')[2]}.json")
    return heapq.nlargest(SHOWN, found, key=itemgetter(1))


def split(tree: Folder, parts: int = SHOWN) -> list[tuple[str, int]]:
    """Split a tree into ``parts`` files and folders that do not overlap, by splitting the largest folder again."""
    heap: list[tuple[int, str, Any]] = [(-tree.size, "", tree)]
    files: list[tuple[str, int]] = []
    while heap and len(heap) + len(files) < parts:
        size, path, part = heapq.heappop(heap)
        if isinstance(part, Folder):
            for name, child in part.children.items():
                child_size = child.size if isinstance(child, Folder) else child
                heapq.heappush(heap, (-child_size, f"{path}/{name}", child))
        else:
            files.append((path, -size))
    return heapq.nlargest(parts, files + [(path, -size) for size, path, _ in heap], key=itemgetter(1))


def measure(folder: str) -> Folder:
    """Return the sizes below a folder of this host; whiteouts and links count as 0."""
    tree = Folder()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                below = tree.children[entry.name] = measure(entry.path)
                tree.size += below.size
            elif entry.is_file(follow_symlinks=False):
                size = tree.children[entry.name] = entry.stat(follow_symlinks=False).st_size
                tree.size += size
    return tree


def _largest_of_layer(folder: Path, cached: Path) -> list[tuple[str, int]]:
    if cached.exists():
        return [(path, size) for path, size in json.loads(cached.read_text(encoding="utf-8"))]
    try:
        found = split(measure(str(folder)))
    except PermissionError:  # a rootless engine's files of other accounts
        return []
    cached.parent.mkdir(parents=True, exist_ok=True)
    new = cached.with_suffix(f".{os.getpid()}.{threading.get_ident()}")  # simultaneous builds may share a layer
    new.write_text(json.dumps(found), encoding="utf-8")
    new.replace(cached)
    return found


def mb(size: float) -> str:
    """Format bytes as megabytes."""
    return f"{size / 1e6:.1f} MB" if size < 100 * 1e6 else f"{size / 1e6:.0f} MB"
