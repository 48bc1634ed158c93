"""Asks registries for the digests of the base images, and writes them to bases.json (`invoke image.pins --update`).

A base whose registry was not asked has no line, and a build of its variant says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from images.catalog.base_digests import Base, read
from images.errors import RegistryFailed
from images.host.paths import BASE_DIGESTS


def update(references: Iterable[str], path: Path = BASE_DIGESTS) -> dict[str, str]:
    """Ask for each base again; what could not be had of which, and why. A registry that is silent is asked once."""
    known, failed, silent = read(path), dict[str, str](), dict[str, str]()
    for reference in sorted(set(references)):
        host = reference.partition("/")[0]
        try:
            if host in silent:
                raise RegistryFailed(silent[host])
            known[reference] = ask(reference)
        except RegistryFailed as failure:
            failed[reference] = str(failure)
            if "does not answer" in str(failure):
                silent[host] = str(failure)
    text = json.dumps({each: asdict(base) for each, base in sorted(known.items())}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    return failed


def ask(reference: str) -> Base:
    """A base's digest (of the index, where it is for several machines) and compression, from its registry."""
    from images.registry.client import (  # requests and docker-py are not asked for by the other tasks
        INDEXES,
        Repository,
    )

    repository, tag = Repository.parse(reference)
    with repository:
        found = repository.manifest(tag)
        if found is None:
            raise RegistryFailed(f"{reference}: the registry has no such tag")
        one = found
        if found.media_type in INDEXES:
            one = repository.manifest(found.parsed["manifests"][0]["digest"]) or found
    layers = {each.get("mediaType", "") for each in one.parsed.get("layers", [])}
    compression = "zstd" if any(each.endswith("zstd") for each in layers) else "gzip"
    return Base(found.digest, compression, f"{repository.host}, asked by invoke image.pins --update")
