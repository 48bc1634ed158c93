"""History of verl's configuration keys, from moved.yaml."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parent / "moved.yaml"
Series = tuple[int, int]


@dataclass(frozen=True)
class Step:
    """What one release did to the keys of the one before."""

    series: Series
    moved: dict[str, str]
    merged: dict[str, str]
    removed: dict[str, str]
    back: tuple[str, ...]


def forwards(key: str, series: Series) -> tuple[str, str]:
    """Return what a release calls a key of an older one, and what to do where it has none, else an empty text."""
    now, instead = key, ""
    for step in _steps_of(key, series):
        renamed = {**step.moved, **step.merged}
        old, gone = longest_prefix(now, renamed), longest_prefix(now, step.removed)
        if len(old) > len(gone):
            now, instead = renamed[old] + now[len(old) :], ""
        elif gone:
            instead = step.removed[gone]
    return now, instead


def backwards(key: str, series: Series) -> str:
    """Return what a release calls a key of a newer one; the key itself where nothing is known of it."""
    for step in reversed([step for step in steps() if step.series > series]):
        older = {new: old for old, new in step.moved.items()}
        if new := longest_prefix(key, older):
            key = older[new] + key[len(new) :]
    return key


def is_current(key: str) -> bool:
    """Tell whether no release dropped the key: then it is the newest one's name, as recipes use it."""
    return forwards(key, steps()[-1].series) == (key, "")


@lru_cache(maxsize=1)
def steps() -> tuple[Step, ...]:
    """Return what every release did, the oldest first."""
    table: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    found = [
        Step(
            (int(name.partition(".")[0]), int(name.partition(".")[2])),
            entry.get("moved") or {},
            entry.get("merged") or {},
            entry.get("removed") or {},
            tuple(entry.get("back") or ()),
        )
        for name, entry in table.items()
    ]
    return tuple(sorted(found, key=lambda step: step.series))


def longest_prefix(key: str, names: Iterable[str]) -> str:
    """The longest of ``names`` that is ``key`` or one of its parents, or an empty string."""
    return max((name for name in names if key == name or key.startswith(name + ".")), key=len, default="")


def _steps_of(key: str, series: Series) -> list[Step]:
    """The steps up to a release, from the last one on that brought the key, or one above it, back."""
    taken: list[Step] = []
    for step in steps():
        if step.series > series:
            break
        taken = [step] if longest_prefix(key, step.back) else [*taken, step]
    return taken
