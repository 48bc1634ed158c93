"""METADATA of verl's releases, from the wheels on PyPI, kept in images/pins/metadata/.

Kept, so that a pair that cannot work is refused without a network. `invoke image.pins --update` fetches them again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.parser import Parser
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

from images.errors import CatalogError
from images.host.paths import VERL_METADATA
from images.host.process import run

KEPT = ("Name", "Version", "Requires-Python", "Requires-Dist")


@dataclass(frozen=True)
class Release:
    """The ranges of one release of verl."""

    version: str
    python: SpecifierSet
    requirements: tuple[Requirement, ...]

    def ranges(self, extra: str = "") -> Iterator[tuple[NormalizedName, SpecifierSet]]:
        """Package and range of all that it asks for, with or without one of its extras."""
        for each in self.requirements:
            if each.specifier and (each.marker is None or each.marker.evaluate({"extra": extra})):
                yield canonicalize_name(each.name), each.specifier


@cache
def release(version: str, folder: Path = VERL_METADATA) -> Release:
    """The kept metadata of a release; CatalogError where there is none."""
    path = _path(version, folder)
    if not path.is_file():
        raise CatalogError(f"{path} is missing: `invoke image.pins --update` fetches the metadata of verl {version}")
    message = Parser().parsestr(path.read_text(encoding="utf-8"))
    requirements = tuple(map(Requirement, message.get_all("Requires-Dist", [])))
    return Release(message["Version"], SpecifierSet(message["Requires-Python"]), requirements)


def known(folder: Path = VERL_METADATA) -> list[str]:
    """The releases whose metadata is kept."""
    return [path.stem.removeprefix("verl-") for path in folder.glob("verl-*.txt")]


def update(version: str, folder: Path = VERL_METADATA, environment: Mapping[str, str] | None = None) -> Path:
    """Ask the package index again for a release's metadata."""
    # A dry run reads the metadata alone, and of any Python's release, whatever Python this is.
    dry_run = ["--dry-run", "--quiet", "--ignore-installed", "--no-deps", "--ignore-requires-python", "--report", "-"]
    target = ["--target", "unused", "--only-binary", ":all:"]
    argv = [sys.executable, "-m", "pip", "install", *dry_run, *target, f"verl=={version}"]
    found = json.loads(run(argv, environment))["install"][0]["metadata"]
    lines = [f"{key}: {value}" for key in KEPT for value in _values(found, key)]
    path = _path(version, folder)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _values(found: Mapping[str, object], key: str) -> list[object]:
    value = found.get(key.lower().replace("-", "_"), [])
    return value if isinstance(value, list) else [value]


def _path(version: str, folder: Path) -> Path:
    return folder / f"verl-{version}.txt"
