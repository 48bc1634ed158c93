"""Largest files and folders of each layer of an image.

A layer never changes, so what was found in it is kept by its digest in ``.build/layers`` and a build looks only at the
layers that it made.
"""

from __future__ import annotations

import heapq
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from images.contents import rootfs
from images.engine.daemon import Inspected
from images.host.paths import LAYER_SIZES

SHOWN = 20


@dataclass
class Folder:
    """A folder of a layer with all that is below it."""

    size: int = 0
    files: dict[str, int] = field(default_factory=dict)
    folders: dict[str, Folder] = field(default_factory=dict)


def largest(image: Inspected, base_layers: int, known: Path = LAYER_SIZES) -> list[tuple[str, int]]:
    """The SHOWN largest places of the layers above the base, with their bytes; none where storage is out of reach."""
    folders = rootfs.layers(image)
    digests = list(reversed(image.attrs["RootFS"]["Layers"]))
    own = len(digests) - base_layers
    found: list[tuple[str, int]] = []
    for folder, digest in list(zip(folders, digests))[:own]:
        found += _of_layer(folder, known / f"{digest.partition(':')[2]}.json")
    return heapq.nlargest(SHOWN, found, key=_size)


def opened(tree: Folder, places: int = SHOWN) -> list[tuple[str, int]]:
    """Files and folders that together hold all of a tree: the largest folder is opened until there are ``places``."""
    heap: list[tuple[int, str, Any]] = [(-tree.size, "", tree)]
    shut: list[tuple[str, int]] = []
    while heap and len(heap) + len(shut) < places:
        size, path, folder = heapq.heappop(heap)
        if folder is None:
            shut.append((path, -size))
            continue
        for name, each in folder.folders.items():
            heapq.heappush(heap, (-each.size, f"{path}/{name}", each))
        for name, length in folder.files.items():
            heapq.heappush(heap, (-length, f"{path}/{name}", None))
    found = shut + [(path, -size) for size, path, _ in heap]
    return heapq.nlargest(places, found, key=_size)


def measured(folder: str) -> Folder:
    """The sizes below a folder of this machine; whiteouts and links count nothing."""
    tree = Folder()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                below = tree.folders[entry.name] = measured(entry.path)
                tree.size += below.size
            elif entry.is_file(follow_symlinks=False):
                length = tree.files[entry.name] = entry.stat(follow_symlinks=False).st_size
                tree.size += length
    return tree


def _of_layer(folder: Path, known: Path) -> list[tuple[str, int]]:
    if known.exists():
        return [(path, size) for path, size in json.loads(known.read_text(encoding="utf-8"))]
    try:
        found = opened(measured(str(folder)))
    except PermissionError:  # a rootless engine's files of other accounts
        return []
    known.parent.mkdir(parents=True, exist_ok=True)
    new = known.with_suffix(f".{os.getpid()}.{threading.get_ident()}")  # builds at once may share a layer
    new.write_text(json.dumps(found), encoding="utf-8")
    new.replace(known)
    return found


def _size(place: tuple[str, int]) -> int:
    return place[1]


def mb(size: float) -> str:
    """Bytes as people read them."""
    return f"{size / 1e6:.1f} MB" if size < 100 * 1e6 else f"{size / 1e6:.0f} MB"
