"""Rules for known failures, from rules/<class>.yaml, and the classes of failures, from classes.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
# From the least to the most explanatory: a symptom is the consequence of another failure, a warning counts only in a
# failed job, a general line is used if no cause is found, a cause is a first failure.
LEVELS = ("symptom", "warning", "general", "cause")
OTHER_CLASSES = ("none", "unknown")
"""Classes without rules: nothing failed, and a failure of an unknown part."""
_CONTEXT_BYTES = 8 << 10


@dataclass(frozen=True)
class Class:
    """A class of failures: its meaning, and similar failures that belong to other classes."""

    name: str
    heading: str
    means: str
    elsewhere: str


@dataclass(frozen=True)
class Rule:
    """A known failure: the pattern of its log line, its cause and fix."""

    id: str
    kind: str
    level: str
    literals: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    cause: str
    fix: str
    references: tuple[str, ...]
    excerpt: str
    source: str

    def find(self, line: bytes) -> re.Match[bytes] | None:
        """Return the match of the rule in a line, None without one.

        Of a very long line only the surroundings of a literal are searched: some patterns take quadratic time.
        """
        for literal in self.literals:
            at = line.find(literal)
            found = self.pattern.search(line[max(at - _CONTEXT_BYTES, 0) : at + _CONTEXT_BYTES]) if at >= 0 else None
            if found:
                return found
        return None

    def cause_and_fix(self, line: bytes) -> tuple[str, str]:
        """Return cause and fix with the named groups of the line inserted."""
        found = self.find(line)
        groups = found.groupdict() if found else {}
        values = {name: value.decode("utf-8", "replace") if value else "?" for name, value in groups.items()}
        return self.cause.format_map(values), self.fix.format_map(values)


@lru_cache(maxsize=1)
def load() -> tuple[Rule, ...]:
    """Return all rules."""
    files = sorted((FOLDER / "rules").glob("*.yaml"))
    return tuple(_rule(path.stem, entry) for path in files for entry in read_yaml(path))


@lru_cache(maxsize=1)
def load_classes() -> tuple[Class, ...]:
    """Return all classes in the order of their precedence."""
    entries = read_yaml(FOLDER / "classes.yaml")
    return tuple(Class(entry["class"], entry["heading"], entry["means"], entry["elsewhere"]) for entry in entries)


def read_yaml(path: Path) -> list[Any]:
    """Return the entries of a YAML file, by libyaml if it is installed."""
    return list(yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)))  # noqa: S506  safe


def _rule(kind: str, entry: Mapping[str, Any]) -> Rule:
    return Rule(
        id=entry["id"],
        kind=kind,
        level=entry.get("level", "cause"),
        literals=tuple(str(literal).encode() for literal in entry["literals"]),
        pattern=re.compile(entry["pattern"].encode()),
        cause=entry["cause"],
        fix=entry["fix"],
        references=(f"docs/troubleshooting.md#{entry['id']}", *entry["references"]),
        excerpt=entry["excerpt"],
        source=entry["source"],
    )
