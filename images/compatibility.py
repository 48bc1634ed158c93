"""Pairs that cannot work, refused before a build starts."""

from __future__ import annotations

from packaging.version import Version

from images.errors import Incompatible
from images.spec import ImageSpec


def refuse_impossible(spec: ImageSpec) -> None:
    """Incompatible, with the way out."""
