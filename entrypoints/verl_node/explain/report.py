"""An explanation, as lines for people and as JSON for machines. Without secrets, whatever the log had."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl_node.explain import aftermath, lines, tracebacks
from verl_node.explain.outcome import Verdict
from verl_node.explain.scan import Hit
from verl_node.explain.sources import Log
from verl_node.masking import masked

PAGE = "docs/troubleshooting.md"
_LONGEST = 2000
_COUNTED_BYTES = 64 << 20
_ANSI = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_UNKNOWN_FIX = "Read what stands before this line; when it is clear, it may become a rule (" + PAGE + ", its end)."


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

    def json(self) -> str:
        """Return it as one JSON object."""
        told = {
            "class": self.kind,
            "cause": self.cause,
            "host": self.host,
            "file": self.file,
            "line": self.line,
            "fix": self.fix,
            "references": list(self.references),
        }
        return json.dumps(told, ensure_ascii=False)

    def text(self) -> str:
        """Return it as lines."""
        where = f"{self.file}:{self.number}" if self.number else self.file
        rows = [
            ("first failure", f"{self.kind}: {self.cause}"),
            ("where", f"{self.host}, {where}" if self.host and where else self.host or where),
            ("line", self.line),
            ("fix", self.fix),
            ("read", ", ".join(self.references)),
            ("seen too", ", ".join(self.consequences)),
            ("not read", f"{self.unread_bytes / 1e6:.0f} MB, for want of time" if self.unread_bytes else ""),
        ]
        return "\n".join(f"{name:<14}{value}" for name, value in rows if value)


def of_hit(hit: Hit, hosts: Mapping[str, str], consequences: Sequence[str]) -> Explanation:
    """Return what a line tells."""
    line = _clean(hit.line)
    if hit.rule is None:
        kind, rule = "unknown", ""
        references: tuple[str, ...] = (PAGE,)
        cause, fix = f"No rule knows this failure; the first exception is {line}", _UNKNOWN_FIX
    else:
        kind, rule = hit.rule.kind, hit.rule.id
        references = hit.rule.references
        cause, fix = (masked(words) for words in hit.rule.words(hit.line))
    return Explanation(
        kind,
        cause,
        _host(hit, hosts),
        str(hit.log.path),
        line,
        fix,
        references,
        number=_number(hit),
        rule=rule,
        consequences=tuple(consequences),
    )


def of_verdict(verdict: Verdict) -> Explanation:
    """Return what the job itself says of its end."""
    cause, fix, told = (masked(words) for words in (verdict.cause, verdict.fix, verdict.told))
    return Explanation(verdict.kind, cause, verdict.host, verdict.file, told, fix, ("docs/faults.md",))


def of_ending(logs: Sequence[Log]) -> Explanation:
    """Return an exception that no traceback leads to, or that a log ends badly and nothing says why, or nothing."""
    for log in (log for log in logs if log.first):
        tail = aftermath.tail(log.path)
        raised = next((found for found in aftermath.EXCEPTION.finditer(tail) if tracebacks.tells(found[1])), None)
        if raised:
            hit = Hit(log, log.path.stat().st_size - len(tail) + raised.start(), raised[0], None, None)
            if aftermath.survived(hit) is None and not aftermath.ended_well(hit):
                return of_hit(hit, {}, ())
        found = aftermath.BADLY.search(tail)
        if found:
            line = _clean(found[0])
            cause = "A process ended badly, and no line before it says why."
            return Explanation("unknown", cause, log.host, str(log.path), line, _UNKNOWN_FIX, (PAGE,))
    return of_nothing()


def of_nothing() -> Explanation:
    """Return that nothing failed."""
    return Explanation("none", "No failure was found.", "", "", "", "", ())


def _host(hit: Hit, hosts: Mapping[str, str]) -> str:
    named = lines.host(hit.line)
    return hosts.get(named, named) or hit.log.host


def _number(hit: Hit) -> int:
    """The line's number in its file, from 1; 0 far down a large one, where counting would take as long as reading."""
    count, left = 1, hit.offset
    if left > _COUNTED_BYTES:
        return 0
    with hit.log.path.open("rb") as file:
        while left > 0:
            block = file.read(min(left, 4 << 20))
            count += block.count(b"\n")
            left -= len(block)
    return count


def _clean(line: bytes) -> str:
    text = _ANSI.sub("", line.decode("utf-8", "replace")).strip()
    return masked(text if len(text) <= _LONGEST else text[:_LONGEST] + " …")
