"""Parts of the software stack, from stack_parts.yaml, for failures that no rule matches.

The explanation marks this as a guess: the class is the part that raised the error, not its cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from verl_node.explain.logs import lines, tracebacks
from verl_node.explain.rules import read_yaml

FILE = Path(__file__).parent / "stack_parts.yaml"
WAYS = ("exception", "importing", "together", "frame", "raised", "writer", "code", "otherwise", "refusal", "line")
_LINE = re.compile(rb"(?m)^.+$")
_MAX_LINE_BYTES = 16 << 10
"""Of a very long line only this much is searched: some patterns take quadratic time."""
_METHOD = re.compile(r"ray::\w+(?:\.\w+)?")


@dataclass(frozen=True)
class StackPart:
    """A part of the stack and the pattern of its failures; ``by`` is one of WAYS."""

    id: str
    by: str
    kind: str
    pattern: re.Pattern[str]
    what: str
    fix: str
    references: tuple[str, ...]
    example: str
    source: str


@dataclass(frozen=True)
class Match:
    """The part of a failure, and the text of the log that matched it."""

    part: StackPart
    evidence: str


def match_exception(line: bytes, traceback: Sequence[str]) -> Match | None:
    """Return the part of an exception by its line and its traceback, None without a match."""
    return next(_matches(line, traceback), None)


def match_tail(tail: bytes, *, ended_badly: bool) -> Iterator[tuple[re.Match[bytes], Match]]:
    """Yield lines of a log's end with a launcher's or a library's error, surest first."""
    for part in _parts("refusal", *(["line"] if ended_badly else [])):
        for found in _LINE.finditer(tail):
            if part.pattern.search(_text(found[0])):
                yield found, Match(part, "the line itself")


def _matches(line: bytes, traceback: Sequence[str]) -> Iterator[Match]:
    text, calls, code = _text(line), tracebacks.frames(traceback), tracebacks.code(traceback)
    exception = f"the exception, {text.partition(':')[0].strip()}"
    yield from _search("exception", text, exception)
    imported = _imported(calls)
    if imported:
        yield from _search("importing", imported, f"{imported}, while it was imported")
    if calls and not calls[-1].in_standard_library:
        where = f"{calls[-1].path} in {calls[-1].function}"
        yield from _search("together", f"{where} -- {code} -- {text}", str(calls[-1]))
    yield from _match_calls(calls)
    writer = _writer(line, traceback)
    yield from _search("writer", writer, writer)
    yield from _search("code", code, f"its code, {code}")
    yield from _search("otherwise", text, exception)


def _search(way: str, text: str, evidence: str) -> Iterator[Match]:
    return (Match(part, evidence) for part in _parts(way) if part.pattern.search(text))


def _match_calls(calls: Sequence[tracebacks.Frame]) -> Iterator[Match]:
    """Match the calls from the innermost outwards, but no callers of the user's code."""
    innermost = next((call for call in reversed(calls) if not call.in_standard_library), None)
    for call in reversed(calls):
        where = f"{call.path} in {call.function}"
        for part in _parts("frame", *(["raised"] if call is innermost else [])):
            if part.pattern.search(where):
                yield Match(part, str(call))
        if call is innermost and call.path.startswith("/"):
            return  # its caller only passed the exception on


def _imported(calls: Sequence[tracebacks.Frame]) -> str:
    """Return the module that was being imported by another one, empty for none."""
    others = [call for call in calls if not call.in_standard_library]
    imported = [call.path for call in others[1:] if call.function == "<module>" and call.path != others[0].path]
    return imported[-1] if imported else ""


def _writer(line: bytes, traceback: Sequence[str]) -> str:
    """Return the process that wrote the line, and the method of the Ray actor."""
    methods = [found[0] for found in map(_METHOD.search, traceback) if found]
    return f"{lines.writer(line).decode('utf-8', 'replace').strip()} {methods[-1] if methods else ''}".strip()


def _text(line: bytes) -> str:
    return lines.without_prefix(line)[:_MAX_LINE_BYTES].decode("utf-8", "replace").strip()


def _parts(*ways: str) -> list[StackPart]:
    return [part for part in load() if part.by in ways]


@lru_cache(maxsize=1)
def load() -> tuple[StackPart, ...]:
    """Return all parts in the order in which they are tried."""
    return tuple(map(_part, read_yaml(FILE)))


def _part(entry: Mapping[str, Any]) -> StackPart:
    return StackPart(
        id=entry["id"],
        by=entry["by"],
        kind=entry["kind"],
        pattern=re.compile(entry["pattern"]),
        what=entry["what"],
        fix=entry["fix"],
        references=tuple(entry["references"]),
        example=entry["example"],
        source=entry["source"],
    )
