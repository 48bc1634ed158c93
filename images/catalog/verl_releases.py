"""METADATA of verl's releases, from the wheels on PyPI, stored in images/pins/metadata/.

So the compatibility rules need no network. `invoke image.pins --update` fetches it again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from packaging.metadata import Metadata
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

from images.errors import CatalogError
from images.host.paths import VERL_METADATA, VERL_PYTHON
from images.host.process import run

KEPT = ("Name", "Version", "Requires-Python", "Requires-Dist")


@cache
def release(version: str, folder: Path = VERL_METADATA) -> Metadata:
    """Read the stored metadata of a release; raise CatalogError if it is missing."""
    path = folder / f"verl-{version}.txt"
    if not path.is_file():
        raise CatalogError(f"{path} is missing: `invoke image.pins --update` fetches the metadata of verl {version}")
    return Metadata.from_email(path.read_bytes(), validate=False)


def ranges(release: Metadata, extra: str = "") -> Iterator[tuple[NormalizedName, SpecifierSet]]:
    """Yield package and version range of each requirement; ``extra`` adds those of one extra."""
    for requirement in release.requires_dist or []:
        if requirement.specifier and (requirement.marker is None or requirement.marker.evaluate({"extra": extra})):
            yield canonicalize_name(requirement.name), requirement.specifier


def admits(version: str, python: str) -> bool:
    """Whether a release's METADATA admits a Python such as 3.9."""
    versions = release(version).requires_python
    return versions is None or versions.contains(python)


def unusable(version: str, python: str, rollout: str) -> list[str]:
    """Return the lines of a release that a training cannot run on a Python such as 3.9 (images/pins/verl_python.py)."""
    return _unusable().get(version, {}).get(python, {}).get(rollout, [])


def known(folder: Path = VERL_METADATA) -> list[str]:
    """The releases with stored metadata."""
    return [path.stem.removeprefix("verl-") for path in folder.glob("verl-*.txt")]


def update(version: str, folder: Path = VERL_METADATA) -> Path:
    """Fetch a release's metadata from the package index."""
    # A dry run reads only the metadata, also of a release for another Python.
    dry_run = ["--dry-run", "--quiet", "--ignore-installed", "--no-deps", "--ignore-requires-python", "--report", "-"]
    target = ["--target", "unused", "--only-binary", ":all:"]
    argv = [sys.executable, "-m", "pip", "install", *dry_run, *target, f"verl=={version}"]
    metadata = json.loads(run(argv))["install"][0]["metadata"]
    lines = [f"{key}: {value}" for key in KEPT for value in _values(metadata, key)]
    path = folder / f"verl-{version}.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _values(metadata: Mapping[str, object], key: str) -> list[object]:
    value = metadata.get(key.lower().replace("-", "_"), [])
    return value if isinstance(value, list) else [value]


@cache
def _unusable(path: Path = VERL_PYTHON) -> dict[str, dict[str, dict[str, list[str]]]]:
    found: dict[str, dict[str, dict[str, list[str]]]] = json.loads(path.read_text(encoding="utf-8"))
    return found
