"""Differences between two images: packages, and files with their sizes and modes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from images.contents import filesystem, packages
from images.contents.layer_sizes import mb
from images.contents.tree import Tree, differing
from images.engine.daemon import local

SHOWN = 20  # of each list on the terminal; a file has them all


@dataclass(frozen=True)
class Change:
    """One package or file: how it is in each image, '' where it is missing; ``bytes`` more in the second."""

    what: str
    before: str
    after: str
    bytes: int = 0


@dataclass(frozen=True)
class Difference:
    """Everything that differs."""

    packages: Sequence[Change]
    files: Sequence[Change]
    sizes: tuple[int, int]


def between(first: str, second: str) -> Difference:
    """Compare two images of this machine; only what their layers hold, nothing of them is run."""
    a, b = local(first), local(second)
    kept = of_packages(packages.inside(a), packages.inside(b))
    return Difference(
        kept, of_files(filesystem.of_image(a), filesystem.of_image(b)), (a.attrs["Size"], b.attrs["Size"])
    )


def of_packages(first: Sequence[packages.Package], second: Sequence[packages.Package]) -> list[Change]:
    """Packages that came, went, or have another version, by kind, name and folder."""
    old, new = ({(_kind(each), each.name, each.where): each.version for each in side} for side in (first, second))
    return [
        Change(f"{kind} {name} in /{where}", old.get((kind, name, where), ""), new.get((kind, name, where), ""))
        for kind, name, where in sorted({*old, *new})
        if old.get((kind, name, where)) != new.get((kind, name, where))
    ]


def of_files(first: Tree, second: Tree) -> list[Change]:
    """Files, folders and links that came, went or differ, the largest difference first."""
    found = []
    for path, a, b in differing(first, second):
        size = (b.size if b else 0) - (a.size if a else 0)
        found.append(Change(f"/{path}", str(a or ""), str(b or ""), size))
    return sorted(found, key=lambda change: (-abs(change.bytes), change.what))


def text(difference: Difference, shown: int | None = SHOWN) -> str:
    """For the terminal: the first ``shown`` of each list, or all."""
    before, after = difference.sizes
    lines = [f"size  {mb(before)} → {mb(after)}, {(after - before) / 1e6:+.1f} MB"]
    for name, changes in (("packages", difference.packages), ("files", difference.files)):
        lines += ["", f"{name}: {len(changes)} differ"]
        for change in changes[:shown]:
            more = f"  ({change.bytes / 1e6:+.1f} MB)" if abs(change.bytes) >= 5e4 else ""
            lines.append(f"  {change.what}: {change.before or 'none'} → {change.after or 'none'}{more}")
        if shown is not None and len(changes) > shown:
            lines.append(f"  … and {len(changes) - shown} more: --output FILE has them")
    return "\n".join(lines)


def write(difference: Difference, path: Path) -> None:
    """Everything: as JSON into a file of that ending, else as text."""
    whole = json.dumps(asdict(difference), indent=1) if path.suffix == ".json" else text(difference, None)
    path.write_text(whole + "\n", encoding="utf-8")


def _kind(package: packages.Package) -> str:
    return package.purl.removeprefix("pkg:").partition("/")[0]
