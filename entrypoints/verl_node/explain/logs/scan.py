"""Scans large logs for lines that a rule or a traceback matches.

A block is looked through for a few words that every failure says near by; only what surrounds them is cut into words,
and only a rule one of whose words is there looks at lines. Of a rule the first line in a file counts: it is then done.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from verl_node.explain.logs import lines, tracebacks
from verl_node.explain.logs.sources import Log
from verl_node.explain.rules import Rule

BLOCK_BYTES = 4 << 20
PART_BYTES = 64 << 20
"""What one process reads at a time; less than this is read by this process alone."""
AROUND_BYTES = 4 << 10
END_BYTES = 128 << 10
"""Of a log's head and tail everything is looked at: who starts or ends it may fail in words of their own."""
MOST_TRACEBACKS = 20
TRACEBACK_BYTES = 32 << 10
"""How far before its exception a traceback may begin."""
_MOST_PARSED = 2000
_MOST_SHAPES = 20000
_SHAPE_BYTES = 200

_NEEDLES = (b"rror", b"ailed")
_WORD = re.compile(rb"[A-Za-z0-9]{2,}")
_CODE = re.compile(rb"^(?: {4}|\s*File \"|\s*raise \w)")


@dataclass(frozen=True)
class Hit:
    """A line that tells something; without a rule it ends a traceback that no rule knows."""

    log: Log
    offset: int
    line: bytes
    rule: Rule | None
    time: float | None


@dataclass(frozen=True)
class Scanned:
    """What was found in which logs, and how much of them was read."""

    logs: Sequence[Log]
    hits: list[Hit]
    read_bytes: int
    total_bytes: int


def files(logs: Sequence[Log], table: Sequence[Rule], *, deadline: float | None, processes: int) -> Scanned:
    """Read the logs, those that tell the story first; at the deadline (time.monotonic) the rest is left."""
    ordered = sorted(logs, key=lambda log: not log.first)
    sizes = {log: log.path.stat().st_size for log in ordered}
    parts = [(log, start, min(start + PART_BYTES, size)) for log, size in sizes.items() for start in _starts(size)]
    jobs = [(log, start, end, tuple(table), deadline) for log, start, end in parts]
    count = min(processes or min(os.cpu_count() or 1, 4), len(jobs))
    if count > 1 and sum(sizes.values()) > PART_BYTES:
        with ProcessPoolExecutor(count) as pool:
            answers = list(pool.map(_part, jobs))
    else:
        answers = [_part(job) for job in jobs]
    hits = _first([hit for found, _ in answers for hit in found])
    return Scanned(logs, hits, sum(read for _, read in answers), sum(sizes.values()))


def again(log: Log, table: Sequence[Rule], start: int) -> list[Hit]:
    """Return what a log tells from ``start`` on, when what came before was survived."""
    return _first(_part((log, start, log.path.stat().st_size, tuple(table), None))[0])


def _starts(size: int) -> range:
    return range(0, max(size, 1), PART_BYTES)


def _first(hits: Sequence[Hit]) -> list[Hit]:
    """Of each rule the first line in each file; every traceback."""
    kept: dict[tuple[Path, str], Hit] = {}
    for hit in sorted(hits, key=lambda hit: hit.offset):
        kept.setdefault((hit.log.path, hit.rule.id if hit.rule else str(hit.offset)), hit)
    return list(kept.values())


def _part(job: tuple[Log, int, int, tuple[Rule, ...], float | None]) -> tuple[list[Hit], int]:
    """Read one part of a log; return what it tells and how many bytes were read."""
    log, start, end, table, deadline = job
    finder = _Finder(log, table)
    size = log.path.stat().st_size
    with log.path.open("rb") as file:
        file.seek(start)
        if start:
            file.readline()  # belongs to the part before
        while (base := file.tell()) < end and (deadline is None or time.monotonic() < deadline):
            block = file.read(min(BLOCK_BYTES, end - base)) + file.readline()
            whole = [(0, END_BYTES)] if base < END_BYTES else []
            whole += [(max(size - END_BYTES - base, 0), len(block))] if base + len(block) > size - END_BYTES else []
            finder.look(block, base, whole)
        return finder.hits, max(file.tell() - start, 0)


class _Finder:
    """Looks through one part, block by block; a rule that found its line is left out from then on."""

    def __init__(self, log: Log, table: Sequence[Rule]) -> None:
        self.hits: list[Hit] = []
        self._log = log
        self._known: set[bytes] = set()
        self._shapes: set[bytes] = set()
        self._parsed = 0
        self._rules: dict[bytes, list[Rule]] = {}
        for rule in table:
            for literal in rule.literals:
                self._rules.setdefault(key(literal), []).append(rule)
        self._done: set[str] = set()
        self._block, self._base = b"", 0

    def look(self, block: bytes, base: int, whole: Sequence[tuple[int, int]]) -> None:
        """Note what a block tells; of the spans in ``whole`` every line is looked at."""
        self._block, self._base = block, base
        for begin, end in _joined(block, [*whole, *self._new()]):
            words = self._rules.keys() & set(_WORD.findall(block, begin, end))
            for rule in {rule.id: rule for word in words for rule in self._rules[word]}.values():
                if rule.id not in self._done:
                    self._try(rule, begin, end)
            self._take_tracebacks(max(begin - TRACEBACK_BYTES, 0), end)

    def _new(self) -> Iterator[tuple[int, int]]:
        """Return what surrounds the lines with a needle, but those that only differ in numbers from one before."""
        for needle in _NEEDLES:
            at = self._block.find(needle)
            while at >= 0:
                first, last = _lines(self._block, at, at)
                shape = self._block[first : min(last, first + _SHAPE_BYTES)].translate(None, b"0123456789")
                if shape not in self._shapes and len(self._shapes) < _MOST_SHAPES:
                    self._shapes.add(shape)
                    yield max(at - AROUND_BYTES, 0), min(at + AROUND_BYTES, len(self._block))
                at = self._block.find(needle, last)

    def _try(self, rule: Rule, begin: int, end: int) -> None:
        found = [place for literal in rule.literals if (place := self._line(rule, literal, begin, end))]
        if found:
            self._done.add(rule.id)
            self._note(*min(found), rule)

    def _line(self, rule: Rule, literal: bytes, begin: int, end: int) -> tuple[int, bytes] | None:
        at = self._block.find(literal, begin, end)
        while at >= 0:
            first, last = _lines(self._block, at, at)
            line = self._block[first:last]
            if rule.find(line) and not _CODE.match(lines.bare(line)):
                return first, line
            at = self._block.find(literal, last, end)
        return None

    def _take_tracebacks(self, begin: int, end: int) -> None:
        if self._base + begin == 0 and (at := tracebacks.beheaded(self._block[:TRACEBACK_BYTES])) >= 0:
            self._take_traceback(at)
        for word in tracebacks.BEGINS:
            at = self._block.find(word, begin, end)
            while at >= 0 and len(self._known) < MOST_TRACEBACKS and self._parsed < _MOST_PARSED:
                self._take_traceback(at)
                at = self._block.find(word, at + 1, end)

    def _take_traceback(self, at: int) -> None:
        self._parsed += 1
        found = tracebacks.root(self._block, at)
        if found and lines.bare(found[1]) not in self._known:  # of many ranks' the first
            self._known.add(lines.bare(found[1]))
            self._note(*found, None)

    def _note(self, offset: int, line: bytes, rule: Rule | None) -> None:
        moment = lines.stamp(self._block[max(offset - AROUND_BYTES, 0) : offset + len(line)])
        self.hits.append(Hit(self._log, self._base + offset, line.rstrip(b"\r"), rule, moment))


def key(literal: bytes) -> bytes:
    """Return the word of a literal by which its rule is found: the longest that it has whole."""
    found = list(_WORD.finditer(literal))
    inner = [word[0] for word in found if word.start() > 0 and word.end() < len(literal)]
    return max(inner or [word[0] for word in found], key=len)


def _joined(block: bytes, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Return the spans widened to whole lines, joined where they meet."""
    begin = end = -1
    for first, last in sorted(spans):
        if first > end:
            if end >= 0:
                yield _lines(block, begin, end)
            begin, end = first, last
        end = max(end, last)
    if end >= 0:
        yield _lines(block, begin, end)


def _lines(block: bytes, begin: int, end: int) -> tuple[int, int]:
    last = block.find(b"\n", end)
    return block.rfind(b"\n", 0, begin) + 1, len(block) if last < 0 else last
