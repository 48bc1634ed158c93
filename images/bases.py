"""What a registry said of the bases: the digest of each, and how its layers are compressed. Kept in bases.json.

`invoke pins --update` asks. A base that no registry was asked for has no line, and the cell says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from images.errors import CatalogError, RegistryFailed

BASES = Path(__file__).with_name("bases.json")


@dataclass(frozen=True)
class Base:
    """A base as it was when its registry was asked."""

    digest: str = ""
    layers: str = ""
    source: str = ""


def read(path: Path = BASES) -> dict[str, Base]:
    """By reference; nothing where no registry was ever asked."""
    if not path.is_file():
        return {}
    try:
        return {reference: Base(**facts) for reference, facts in json.loads(path.read_text(encoding="utf-8")).items()}
    except (ValueError, TypeError) as mistake:
        raise CatalogError(f"{path}: {mistake}") from mistake


def update(references: Iterable[str], path: Path = BASES) -> dict[str, str]:
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
    from images.registry import INDEXES, Repository  # requests and docker-py are not asked for by the other tasks

    repository, tag = Repository.of(reference)
    with repository:
        found = repository.manifest(tag)
        if found is None:
            raise RegistryFailed(f"{reference}: the registry has no such tag")
        one = found
        if found.media_type in INDEXES:
            one = repository.manifest(found.parts["manifests"][0]["digest"]) or found
    layers = {each.get("mediaType", "") for each in one.parts.get("layers", [])}
    compression = "zstd" if any(each.endswith("zstd") for each in layers) else "gzip"
    return Base(found.digest, compression, f"{repository.host}, asked by invoke pins --update")
