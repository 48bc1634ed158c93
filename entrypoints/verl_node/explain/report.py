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
_MAX_SEEN = 20
_MAX_COUNTED_BYTES = 64 << 20


@dataclass(frozen=True)
class Seen:
    """A line that matches a rule or ends a traceback, but was not fatal."""

    rule: str
    file: str
    number: int
    line: str

    def __str__(self) -> str:
        where = f"{printable(self.file)}:{self.number}"
        return f"seen, not fatal: {where}{f' ({self.rule})' if self.rule else ''}: {self.line}"


@dataclass(frozen=True)
class Explanation:
    """The first failure: its class, cause, line, location and fix."""

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
        content = {
            "class": self.kind,
            "cause": self.cause,
            "host": printable(self.host),
            "file": printable(self.file),
            "line": self.line,
            "fix": self.fix,
            "references": list(self.references),
            "seen_not_fatal": [{**vars(seen), "file": printable(seen.file)} for seen in self.seen],
        }
        return json.dumps(content, ensure_ascii=False)

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
            ("also seen", ", ".join(self.consequences)),
            ("not read", f"{self.unread_bytes / 1e6:.0f} MB, because of the time limit" if self.unread_bytes else ""),
        ]
        return "\n".join([*(f"{name:<14}{printable(value)}" for name, value in rows if value), *map(str, self.seen)])


def from_rule(hit: Hit, rule: Rule, hosts: Mapping[str, str], consequences: Sequence[str]) -> Explanation:
    """Return the explanation of a line that matches a rule."""
    cause, fix = (_shown(text) for text in rule.cause_and_fix(hit.line))
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


def from_verdict(verdict: Verdict) -> Explanation:
    """Return the explanation of the job's own verdict."""
    cause, fix, line = (_shown(text) for text in (verdict.cause, verdict.fix, verdict.line))
    return Explanation(verdict.kind, cause, verdict.host, verdict.file, line, fix, ("docs/faults.md",))


def no_failure(hits: Sequence[Hit] = ()) -> Explanation:
    """Return the explanation of a job without a failure, with the lines that were not fatal."""
    by_line = {(hit.log.path, hit.offset): hit for hit in sorted(hits, key=lambda hit: hit.rule is not None)}
    seen = sorted(by_line.values(), key=lambda hit: (str(hit.log.path), hit.offset))[:_MAX_SEEN]
    return Explanation("none", "No failure was found.", "", "", "", "", (), seen=tuple(map(_seen, seen)))


def _seen(hit: Hit) -> Seen:
    return Seen(hit.rule.id if hit.rule else "", str(hit.log.path), number(hit), clean(hit.line))


def host(hit: Hit, hosts: Mapping[str, str]) -> str:
    """Return the host of a line, by the job's name for it if that is known."""
    named = lines.host(hit.line)
    return hosts.get(named, named) or hit.log.host


def number(hit: Hit) -> int:
    """Return the line's number from 1, or 0 far down in a large file."""
    count, left = 1, hit.offset
    if left > _MAX_COUNTED_BYTES:
        return 0
    with hit.log.path.open("rb") as file:
        while left > 0:
            block = file.read(min(left, 4 << 20))
            count += block.count(b"\n")
            left -= len(block)
    return count


def clean(line: bytes) -> str:
    """Return a log line for display: shortened, without control characters and secrets."""
    return _shown(line.decode("utf-8", "replace").strip())


def _shown(text: str) -> str:
    return beginning(printable(text).strip(), _LONGEST)  # first: a secret may contain an escape sequence
