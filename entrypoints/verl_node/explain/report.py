"""Formats an explanation as text and JSON, with secrets masked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl_node.explain.logs import lines
from verl_node.explain.logs.scan import Hit
from verl_node.explain.outcome import Verdict
from verl_node.explain.rules import Rule
from verl_node.reporting.control_characters import printable
from verl_node.reporting.masking import beginning

PAGE = "docs/troubleshooting.md"
_LONGEST = 2000
_MOST_SEEN = 20
_COUNTED_BYTES = 64 << 20


@dataclass(frozen=True)
class Seen:
    """A line that was not fatal, though a rule knows it or an exception is told."""

    rule: str
    file: str
    number: int
    line: str

    def __str__(self) -> str:
        where = f"{printable(self.file)}:{self.number}"
        return f"seen, not fatal: {where}{f' ({self.rule})' if self.rule else ''}: {self.line}"


@dataclass(frozen=True)
class Explanation:
    """The first failure: its class, the line that tells it and where, what it was, and what to do."""

    kind: str
    cause: str
    host: str
    file: str
    line: str
    fix: str
    references: tuple[str, ...]
    number: int = 0
    rule: str = ""
    consequences: tuple[str, ...] = ()
    unread_bytes: int = 0
    traceback: tuple[str, ...] = ()
    seen: tuple[Seen, ...] = ()

    def json(self) -> str:
        """Return it as one JSON object."""
        told = {
            "class": self.kind,
            "cause": self.cause,
            "host": printable(self.host),
            "file": printable(self.file),
            "line": self.line,
            "fix": self.fix,
            "references": list(self.references),
            "seen_not_fatal": [{**vars(one), "file": printable(one.file)} for one in self.seen],
        }
        return json.dumps(told, ensure_ascii=False)

    def text(self) -> str:
        """Return it as lines."""
        where = f"{self.file}:{self.number}" if self.number else self.file
        rows = [
            ("first failure", f"{self.kind}: {self.cause}"),
            ("where", f"{self.host}, {where}" if self.host and where else self.host or where),
            ("line", self.line),
            ("traceback", f"\n{'':<14}".join(self.traceback)),
            ("fix", self.fix),
            ("read", ", ".join(self.references)),
            ("seen too", ", ".join(self.consequences)),
            ("not read", f"{self.unread_bytes / 1e6:.0f} MB, for want of time" if self.unread_bytes else ""),
        ]
        return "\n".join([*(f"{name:<14}{printable(value)}" for name, value in rows if value), *map(str, self.seen)])


def of_rule(hit: Hit, rule: Rule, hosts: Mapping[str, str], consequences: Sequence[str]) -> Explanation:
    """Return what a line tells that a rule knows."""
    cause, fix = (_shown(words) for words in rule.words(hit.line))
    return Explanation(
        rule.kind,
        cause,
        host(hit, hosts),
        str(hit.log.path),
        clean(hit.line),
        fix,
        rule.references,
        number=number(hit),
        rule=rule.id,
        consequences=tuple(consequences),
    )


def of_verdict(verdict: Verdict) -> Explanation:
    """Return what the job itself says of its end."""
    cause, fix, told = (_shown(words) for words in (verdict.cause, verdict.fix, verdict.told))
    return Explanation(verdict.kind, cause, verdict.host, verdict.file, told, fix, ("docs/faults.md",))


def of_nothing(hits: Sequence[Hit] = ()) -> Explanation:
    """Return that nothing failed, with what was seen and was not fatal."""
    places = {(hit.log.path, hit.offset): hit for hit in sorted(hits, key=lambda hit: hit.rule is not None)}
    seen = sorted(places.values(), key=lambda hit: (str(hit.log.path), hit.offset))[:_MOST_SEEN]
    return Explanation("none", "No failure was found.", "", "", "", "", (), seen=tuple(map(_seen, seen)))


def _seen(hit: Hit) -> Seen:
    return Seen(hit.rule.id if hit.rule else "", str(hit.log.path), number(hit), clean(hit.line))


def host(hit: Hit, hosts: Mapping[str, str]) -> str:
    """Return the host that a line was written on, in the job's own words for it where they are known."""
    named = lines.host(hit.line)
    return hosts.get(named, named) or hit.log.host


def number(hit: Hit) -> int:
    """Return the line's number in its file, from 1; 0 far down a large one: counting would take as long as reading."""
    count, left = 1, hit.offset
    if left > _COUNTED_BYTES:
        return 0
    with hit.log.path.open("rb") as file:
        while left > 0:
            block = file.read(min(left, 4 << 20))
            count += block.count(b"\n")
            left -= len(block)
    return count


def clean(line: bytes) -> str:
    """Return a line of a log as people may see it: without control characters and secrets, and not endless."""
    return _shown(line.decode("utf-8", "replace").strip())


def _shown(text: str) -> str:
    return beginning(printable(text).strip(), _LONGEST)  # a secret may have a colour in its midst
