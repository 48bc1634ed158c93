"""The key of a build's inputs; an image with the same key is not built again.

Every input has a name and a digest: each file, folder and link of the staged context with its mode (the Dockerfile is
one of them), the base's ID, the labels set at build time, and the engine. Settings that a site passes as build secrets
are left out on purpose: they change no layer (docs/images.md, "Site settings"). The digest of all inputs is the label
``verljob.inputs``.

A label proves nothing, since every image that is built on ours inherits it. So this checkout records the ID of the
image that it built from each key, and only that image counts. A reproducible image does not have the label, which
would depend on the modes of the checkout's files, and those are no part of the image.
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
from images.engine.daemon import find as find_image
from images.host import digests
from images.host.digests import DigestCache
from images.host.paths import BUILT

LABEL = "verljob.inputs"
BASE, ENGINE, LABELS = "the base", "the engine", "the build's labels"


def docker_versions(engine: Engine) -> str:
    """Return the versions of docker, buildx and the daemon: others may make another image of the same files."""
    return f"{engine.version} buildx={engine.buildx} {daemon_version()['Version']}"


def collect(
    folder: Path,
    base_id: str,
    builder: str,
    labels: Mapping[str, str],
    staged: Mapping[str, str | None],
    *,
    cache: DigestCache | None = None,
) -> dict[str, str]:
    """Return all inputs of a build of the context ``folder``, name to digest.

    ``builder`` names the engine with its version; ``staged`` are the entries that Staging recorded, of which those that
    are None are read, or taken from the ``cache`` of digests.
    """
    found = {BASE: base_id, ENGINE: builder, LABELS: json.dumps(labels, sort_keys=True)}
    return {**found, **{name: entry or _describe(f"{folder}/{name}", cache) for name, entry in staged.items()}}


def key(inputs: Mapping[str, str]) -> str:
    """Return one digest of all inputs, independent of their order."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def find_built(inputs_key: str, folder: Path = BUILT) -> Inspected | None:
    """Return the image that this checkout built from the inputs of this key, if the daemon still has it."""
    built = folder / inputs_key
    return find_image(built.read_text(encoding="utf-8")) if built.exists() else None


def record_built(inputs_key: str, image_id: str, folder: Path = BUILT) -> None:
    """Record the ID of the image that was built from these inputs."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{inputs_key}.new"
    new.write_text(image_id, encoding="utf-8")
    new.replace(folder / inputs_key)


def changed(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    """Return the names of the inputs that differ or are in one of both only."""
    return sorted({name for name, _ in new.items() ^ old.items()})


def files(inputs: Mapping[str, str]) -> dict[str, str]:
    """Return the regular files of the context among the inputs, each with its sha256."""
    entries = {name: value.split(" ") for name, value in inputs.items() if name not in (BASE, ENGINE, LABELS)}
    return {name: entry[2] for name, entry in entries.items() if stat.S_ISREG(int(entry[0], 8))}


def _describe(path: str, cache: DigestCache | None) -> str:
    """Return mode and content of a file, folder or link."""
    state = os.lstat(path)
    mode = f"{state.st_mode:o}"
    if stat.S_ISREG(state.st_mode):
        digest = cache.sha256(path, state) if cache else digests.sha256_file(Path(path))
        return f"{mode} {state.st_size} {digest}"
    return mode if stat.S_ISDIR(state.st_mode) else f"{mode} {os.readlink(path)}"
