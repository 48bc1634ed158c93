"""Differences between two images: packages, and files with their sizes and modes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from images.contents import filesystem, packages
from images.contents.filesystem import Tree, differing
from images.contents.layer_sizes import mb
from images.engine.daemon import local

SHOWN = 20  # of each list on the terminal; the file of --output has all


@dataclass(frozen=True)
class Change:
    """One package or file in both images, '' if it is missing; ``bytes`` is the size in the second less the first."""

    what: str
    before: str
    after: str
    bytes: int = 0


@dataclass(frozen=True)
class Difference:
    """The packages and files that differ, and the sizes of both images."""

    packages: Sequence[Change]
    files: Sequence[Change]
    sizes: tuple[int, int]


def compare(first: str, second: str) -> Difference:
    """Compare two images of the daemon by the content of their layers, without running them."""
    a, b = local(first), local(second)
    changed_packages = package_changes(packages.inside(a), packages.inside(b))
    changed_files = file_changes(filesystem.read_image(a), filesystem.read_image(b))
    return Difference(changed_packages, changed_files, (a.attrs["Size"], b.attrs["Size"]))


def package_changes(first: Sequence[packages.Package], second: Sequence[packages.Package]) -> list[Change]:
    """Return added, removed and changed packages, by kind, name and folder."""
    old, new = ({(_kind(each), each.name, each.where): each.version for each in side} for side in (first, second))
    return [
        Change(f"{kind} {name} in /{where}", old.get((kind, name, where), ""), new.get((kind, name, where), ""))
        for kind, name, where in sorted({*old, *new})
        if old.get((kind, name, where)) != new.get((kind, name, where))
    ]


def file_changes(first: Tree, second: Tree) -> list[Change]:
    """Return added, removed and changed files, folders and links, the largest difference first."""
    found = []
    for path, a, b in differing(first, second):
        size = (b.size if b else 0) - (a.size if a else 0)
        found.append(Change(f"/{path}", str(a or ""), str(b or ""), size))
    return sorted(found, key=lambda change: (-abs(change.bytes), change.what))


def text(difference: Difference, shown: int | None = SHOWN) -> str:
    """Format the first ``shown`` changes of each list, or all."""
    before, after = difference.sizes
    lines = [f"size  {mb(before)} → {mb(after)}, {(after - before) / 1e6:+.1f} MB"]
    for name, changes in (("packages", difference.packages), ("files", difference.files)):
        lines += ["", f"{name}: {len(changes)} differ"]
        for change in changes[:shown]:
            size = f"  ({change.bytes / 1e6:+.1f} MB)" if abs(change.bytes) >= 5e4 else ""
            lines.append(f"  {change.what}: {change.before or 'none'} → {change.after or 'none'}{size}")
        if shown is not None and len(changes) > shown:
            lines.append(f"  … and {len(changes) - shown} more: use --output FILE for all")
    return "\n".join(lines)


def write(difference: Difference, path: Path) -> None:
    """Write all changes: as JSON if the file's name ends in .json, else as text."""
    whole = json.dumps(asdict(difference), indent=1) if path.suffix == ".json" else text(difference, None)
    path.write_text(whole + "\n", encoding="utf-8")


def _kind(package: packages.Package) -> str:
    return package.purl.removeprefix("pkg:").partition("/")[0]
