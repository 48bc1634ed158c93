"""Rules for known failures, from rules/<class>.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "rules"
# From what explains least to most: a symptom is another failure's consequence, a warning counts only in a job that
# failed, a general line gives way to one that says the cause more precisely, a cause is a first failure by itself.
LEVELS = ("symptom", "warning", "general", "cause")
_AROUND_BYTES = 8 << 10


@dataclass(frozen=True)
class Rule:
    """One failure that is known: the line that tells it, and what is said of it."""

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

    @property
    def weight(self) -> int:
        """How much it explains, the place of its level in LEVELS."""
        return LEVELS.index(self.level)

    def find(self, line: bytes) -> re.Match[bytes] | None:
        """Return what the line tells, None where it is not one that the rule was written for.

        Of a very long line only what stands around a literal is looked at: some patterns take time by its square.
        """
        for literal in self.literals:
            at = line.find(literal)
            found = self.pattern.search(line[max(at - _AROUND_BYTES, 0) : at + _AROUND_BYTES]) if at >= 0 else None
            if found:
                return found
        return None

    def words(self, line: bytes) -> tuple[str, str]:
        """Return cause and fix with what the line names in their places."""
        found = self.find(line)
        named = found.groupdict() if found else {}
        values = {name: value.decode("utf-8", "replace") if value else "?" for name, value in named.items()}
        return self.cause.format_map(values), self.fix.format_map(values)


@lru_cache(maxsize=1)
def load() -> tuple[Rule, ...]:
    """Return all rules."""
    return tuple(
        _rule(path.stem, entry)
        for path in sorted(FOLDER.glob("*.yaml"))
        for entry in yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  safe
    )


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
