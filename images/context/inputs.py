"""The key of a build's inputs; an image with the same key is not built again.

All that a build depends on has a name and a digest: every file, folder and link of the staged context with its mode
(the Dockerfile is one of them), the base's ID, the build's own labels, and the engine. What a site hands over as a
secret is left out on purpose: it changes no layer (docs/images.md, "At a site"). The digest over them all is the label
``verljob.inputs``.

A label alone proves nothing, since whatever is built on an image inherits it. So this checkout keeps which image it
made of which inputs, and only that very image counts. An image of the same bytes has no such label: it would tell the
modes of a checkout's files, which are no part of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from images.engine.client import Engine
from images.engine.daemon import Inspected, daemon_version
from images.engine.daemon import find as image_of
from images.host import digests
from images.host.digests import Digests
from images.host.paths import BUILT

LABEL = "verljob.inputs"
BASE, ENGINE, LABELS = "the base", "the engine", "the build's labels"


def by_docker(engine: Engine) -> str:
    """What of an engine may make another image of the same files."""
    return f"{engine.version} buildx={engine.buildx} {daemon_version()['Version']}"


def inputs(
    folder: Path,
    base_id: str,
    builder: str,
    labels: Mapping[str, str],
    known: Digests | None = None,
    *,
    told: Mapping[str, str | None] | None = None,
) -> dict[str, str]:
    """Name to digest of everything that a build of the staged ``folder`` depends on.

    ``known`` remembers its files' digests; without it all are read. ``told`` is what whoever staged the folder knows of
    it, under every name that is in it; without it the folder is looked through.
    """
    found = {BASE: base_id, ENGINE: builder, LABELS: json.dumps(labels, sort_keys=True)}
    if not told:
        return {**found, **_below(str(folder), known)}
    return {**found, **{name: each or _seen(f"{folder}/{name}", known) for name, each in told.items()}}


def key(found: Mapping[str, str]) -> str:
    """One digest over all inputs, the same for the same inputs in any order."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def find(wanted: str, folder: Path = BUILT) -> Inspected | None:
    """The image that this checkout built from the inputs of this key, if the daemon still has it."""
    kept = folder / wanted
    return image_of(kept.read_text(encoding="utf-8")) if kept.exists() else None


def keep(wanted: str, image_id: str, folder: Path = BUILT) -> None:
    """Remember which image these inputs made."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{wanted}.new"
    new.write_text(image_id, encoding="utf-8")
    new.replace(folder / wanted)


def changed(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    """The names of the inputs that differ, came or went."""
    return sorted({name for name, _ in new.items() ^ old.items()})


def files(found: Mapping[str, str]) -> dict[str, str]:
    """Of inputs the regular files of the context, each with its sha256."""
    told = {name: value.split(" ") for name, value in found.items() if name not in (BASE, ENGINE, LABELS)}
    return {name: words[2] for name, words in told.items() if stat.S_ISREG(int(words[0], 8))}


def _below(top: str, known: Digests | None) -> dict[str, str]:
    found, folders = dict[str, str](), [""]
    while folders:
        above = folders.pop()
        with os.scandir(f"{top}/{above}") as entries:
            for entry in entries:
                found[above + entry.name] = _seen(entry.path, known)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{above}{entry.name}/")
    return found


def _seen(path: str, known: Digests | None) -> str:
    """Mode and content of what lies there."""
    state = os.lstat(path)
    mode = f"{state.st_mode:o}"
    if stat.S_ISREG(state.st_mode):
        return f"{mode} {state.st_size} {_content(path, state, known)}"
    return mode if stat.S_ISDIR(state.st_mode) else f"{mode} {os.readlink(path)}"


def _content(path: str, state: os.stat_result, known: Digests | None) -> str:
    return known.sha256(path, state) if known else digests.sha256_file(Path(path))
