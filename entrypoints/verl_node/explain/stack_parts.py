"""Parts of the software stack, from stack_parts.yaml, for failures that no rule matches.

A guess by structure, and the explanation says so: the class is the part in which it was raised, not its cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from verl_node.explain.logs import lines, tracebacks

FILE = Path(__file__).parent / "stack_parts.yaml"
WAYS = ("exception", "importing", "together", "frame", "raised", "writer", "code", "otherwise", "refusal", "line")
_LINE = re.compile(rb"(?m)^.+$")
_MOST_BYTES = 16 << 10
"""Of a very long line its first bytes tell: some patterns take time by the square of the length."""
_METHOD = re.compile(r"ray::\w+(?:\.\w+)?")


@dataclass(frozen=True)
class Place:
    """A part of the stack, and what tells that a failure is its: ``by`` is one of WAYS."""

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
class Placed:
    """A failure's place, and by which words of the log it is that."""

    place: Place
    told: str


def of_exception(line: bytes, traceback: Sequence[str]) -> Placed | None:
    """Return the place of an exception by its line and the traceback before it, None where nothing tells."""
    return next(_tellings(line, traceback), None)


def of_tail(tail: bytes, *, ended_badly: bool) -> Iterator[tuple[re.Match[bytes], Placed]]:
    """Return lines of a log's end that are no exceptions: what a launcher or a library says of itself, surest first."""
    for place in _by("refusal", *(["line"] if ended_badly else [])):
        for found in _LINE.finditer(tail):
            if place.pattern.search(_text(found[0])):
                yield found, Placed(place, "its own words")


def _tellings(line: bytes, traceback: Sequence[str]) -> Iterator[Placed]:
    text, calls = _text(line), tracebacks.frames(traceback)
    words = f"its words, {text.partition(':')[0].strip()}"
    yield from (Placed(place, words) for place in _by("exception") if place.pattern.search(text))
    imported = _imported(calls)
    yield from (
        Placed(place, f"{imported}, while it was imported")
        for place in _by("importing")
        if imported and place.pattern.search(imported)
    )
    met = _together(calls, tracebacks.code(traceback), text)
    yield from (Placed(place, str(calls[-1])) for place in _by("together") if place.pattern.search(met))
    yield from _called(calls)
    writer = _writer(line, traceback)
    yield from (Placed(place, writer) for place in _by("writer") if place.pattern.search(writer))
    code = tracebacks.code(traceback)
    yield from (Placed(place, f"its code, {code}") for place in _by("code") if place.pattern.search(code))
    yield from (Placed(place, words) for place in _by("otherwise") if place.pattern.search(text))


def _called(calls: Sequence[tracebacks.Frame]) -> Iterator[Placed]:
    """Look at the calls from the innermost outwards, no further than code that is no installed package's."""
    innermost = next((call for call in reversed(calls) if not call.pythons_own), None)
    for call in reversed(calls):
        where = f"{call.path} in {call.function}"
        for place in _by("frame", *(["raised"] if call is innermost else [])):
            if place.pattern.search(where):
                yield Placed(place, str(call))
        if call is innermost and call.path.startswith("/"):
            return  # its caller only passed it on


def _together(calls: Sequence[tracebacks.Frame], code: str, exception: str) -> str:
    """Return where, by what and with what it was raised; empty where nothing or Python's own code tells."""
    innermost = calls[-1] if calls and not calls[-1].pythons_own else None
    return f"{innermost.path} in {innermost.function} -- {code} -- {exception}" if innermost else ""


def _imported(calls: Sequence[tracebacks.Frame]) -> str:
    """Return the module that was being imported by another, empty where none was: a program's own is no import."""
    others = [call for call in calls if not call.pythons_own]
    imported = [call.path for call in others[1:] if call.function == "<module>" and call.path != others[0].path]
    return imported[-1] if imported else ""


def _writer(line: bytes, traceback: Sequence[str]) -> str:
    """Return who says it: the process that wrote the line, and the method of Ray's actor that it came from."""
    methods = [found[0] for found in map(_METHOD.search, traceback) if found]
    return f"{lines.writer(line).decode('utf-8', 'replace').strip()} {methods[-1] if methods else ''}".strip()


def _text(line: bytes) -> str:
    return lines.bare(line)[:_MOST_BYTES].decode("utf-8", "replace").strip()


def _by(*ways: str) -> list[Place]:
    return [place for place in load() if place.by in ways]


@lru_cache(maxsize=1)
def load() -> tuple[Place, ...]:
    """Return all places, in the order in which they are tried."""
    entries = yaml.load(FILE.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  safe
    return tuple(map(_place, entries))


def _place(entry: Mapping[str, Any]) -> Place:
    return Place(
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
