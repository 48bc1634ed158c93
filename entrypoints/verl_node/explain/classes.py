"""Classes of failures, from classes.yaml, in the order of their precedence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml

FILE = Path(__file__).parent / "classes.yaml"
OTHERS = ("none", "unknown")
"""What no rule and no place has: nothing failed, and nothing tells whose it was."""


@dataclass(frozen=True)
class Class:
    """What a class means, and what looks like it and is another's."""

    name: str
    heading: str
    means: str
    elsewhere: str


@lru_cache(maxsize=1)
def load() -> tuple[Class, ...]:
    """Return all classes, in the order in which they are asked."""
    entries = yaml.load(FILE.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  safe
    return tuple(Class(entry["class"], entry["heading"], entry["means"], entry["elsewhere"]) for entry in entries)
