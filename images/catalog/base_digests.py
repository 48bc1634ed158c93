"""Digests of the base images and the compression of their layers, read from images/pins/bases.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from images.errors import CatalogError
from images.host.paths import BASE_DIGESTS


@dataclass(frozen=True)
class Base:
    """A base as it was when its registry was asked."""

    digest: str = ""
    layers: str = ""
    source: str = ""


def read(path: Path = BASE_DIGESTS) -> dict[str, Base]:
    """By reference; nothing where no registry was ever asked."""
    if not path.is_file():
        return {}
    try:
        return {reference: Base(**facts) for reference, facts in json.loads(path.read_text(encoding="utf-8")).items()}
    except (ValueError, TypeError) as mistake:
        raise CatalogError(f"{path}: {mistake}") from mistake
