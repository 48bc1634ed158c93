"""Scans large logs for lines that match a rule or end a traceback.

A block is searched for a few words that are near every failure; only their surroundings are split into words, and only
a rule with one of these words is tried. The first match of a rule in a file counts; then the rule is skipped.
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
"""Size of the part for one process; smaller logs are read without other processes."""
CONTEXT_BYTES = 4 << 10
END_BYTES = 128 << 10
"""The head and the tail of a log are scanned completely: launchers have other error messages."""
MAX_TRACEBACKS = 20
TRACEBACK_BYTES = 32 << 10
"""Longest distance from the head of a traceback to its exception."""
_MAX_PARSED = 2000
_MAX_SHAPES = 20000
_SHAPE_BYTES = 200

_NEEDLES = (b"rror", b"ailed")
_WORD = re.compile(rb"[A-Za-z0-9]{2,}")
_CODE = re.compile(rb"^(?: {4}|\s*File \"|\s*raise \w)")


@dataclass(frozen=True)
class Hit:
    """A line that matches a rule; without a rule, the exception of a traceback."""

    log: Log
    offset: int
    line: bytes
    rule: Rule | None
    time: float | None

    @classmethod
    def in_tail(cls, log: Log, tail: bytes, found: re.Match[bytes]) -> Hit:
        """Return the hit of a match in the last bytes of a log."""
        return cls(log, log.path.stat().st_size - len(tail) + found.start(), found[0], None, None)

    def before(self) -> bytes:
        """Return the lines before the hit, as far as its traceback may begin."""
        begin = max(self.offset - TRACEBACK_BYTES, 0)
        with self.log.path.open("rb") as file:
            file.seek(begin)
            text = file.read(self.offset - begin)
        return text.partition(b"\n")[2] if begin else text

    def after(self, size: int) -> bytes:
        """Return up to ``size`` bytes after the hit, from the next line on."""
        with self.log.path.open("rb") as file:
            file.seek(self.offset + len(self.line))
            return file.read(size).partition(b"\n")[2]


@dataclass(frozen=True)
class Scanned:
    """The scanned logs with their hits, and the number of bytes that were read."""

    logs: Sequence[Log]
    hits: list[Hit]
    read_bytes: int
    total_bytes: int


def scan_files(logs: Sequence[Log], table: Sequence[Rule], *, deadline: float | None, processes: int) -> Scanned:
    """Scan the logs, main ones first; stop at the deadline (time.monotonic)."""
    ordered = sorted(logs, key=lambda log: not log.main)
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


def rescan(log: Log, table: Sequence[Rule], start: int) -> list[Hit]:
    """Return the hits of a log from ``start`` on."""
    return _first(_part((log, start, log.path.stat().st_size, tuple(table), None))[0])


def _starts(size: int) -> range:
    return range(0, max(size, 1), PART_BYTES)


def _first(hits: Sequence[Hit]) -> list[Hit]:
    """Return the first hit of each rule in each file, and every traceback."""
    kept: dict[tuple[Path, str], Hit] = {}
    for hit in sorted(hits, key=lambda hit: hit.offset):
        kept.setdefault((hit.log.path, hit.rule.id if hit.rule else str(hit.offset)), hit)
    return list(kept.values())


def _part(job: tuple[Log, int, int, tuple[Rule, ...], float | None]) -> tuple[list[Hit], int]:
    """Scan one part of a log; return its hits and the number of bytes read."""
    log, start, end, table, deadline = job
    scanner = _Scanner(log, table)
    size = log.path.stat().st_size
    with log.path.open("rb") as file:
        file.seek(start)
        if start:
            file.readline()  # belongs to the previous part
        while (base := file.tell()) < end and (deadline is None or time.monotonic() < deadline):
            block = file.read(min(BLOCK_BYTES, end - base)) + file.readline()
            whole = [(0, END_BYTES)] if base < END_BYTES else []
            whole += [(max(size - END_BYTES - base, 0), len(block))] if base + len(block) > size - END_BYTES else []
            scanner.scan(block, base, whole)
        return scanner.hits, max(file.tell() - start, 0)


class _Scanner:
    """Scans one part block by block; a rule is skipped after its first match."""

    def __init__(self, log: Log, table: Sequence[Rule]) -> None:
        self.hits: list[Hit] = []
        self._log = log
        self._exceptions: set[bytes] = set()
        self._shapes: set[bytes] = set()
        self._parsed = 0
        self._rules: dict[bytes, list[Rule]] = {}
        for rule in table:
            for literal in rule.literals:
                self._rules.setdefault(key(literal), []).append(rule)
        self._done: set[str] = set()
        self._block, self._base = b"", 0

    def scan(self, block: bytes, base: int, whole: Sequence[tuple[int, int]]) -> None:
        """Record the hits of a block; the spans in ``whole`` are scanned completely."""
        self._block, self._base = block, base
        for begin, end in _joined(block, [*whole, *self._new_spans()]):
            words = self._rules.keys() & set(_WORD.findall(block, begin, end))
            for rule in {rule.id: rule for word in words for rule in self._rules[word]}.values():
                if rule.id not in self._done:
                    self._try(rule, begin, end)
            self._find_tracebacks(max(begin - TRACEBACK_BYTES, 0), end)

    def _new_spans(self) -> Iterator[tuple[int, int]]:
        """Yield the surroundings of lines with a needle, skipping repeated lines."""
        for needle in _NEEDLES:
            at = self._block.find(needle)
            while at >= 0:
                first, last = _lines(self._block, at, at)
                shape = self._block[first : min(last, first + _SHAPE_BYTES)].translate(None, b"0123456789")
                if shape not in self._shapes and len(self._shapes) < _MAX_SHAPES:
                    self._shapes.add(shape)
                    yield max(at - CONTEXT_BYTES, 0), min(at + CONTEXT_BYTES, len(self._block))
                at = self._block.find(needle, last)

    def _try(self, rule: Rule, begin: int, end: int) -> None:
        found = [line for literal in rule.literals if (line := self._line(rule, literal, begin, end))]
        if found:
            self._done.add(rule.id)
            self._add_hit(*min(found), rule)

    def _line(self, rule: Rule, literal: bytes, begin: int, end: int) -> tuple[int, bytes] | None:
        at = self._block.find(literal, begin, end)
        while at >= 0:
            first, last = _lines(self._block, at, at)
            line = self._block[first:last]
            is_code = _CODE.match(lines.without_prefix(line))
            if rule.find(line) and not is_code and not tracebacks.is_ignored(self._block, first, TRACEBACK_BYTES):
                return first, line
            at = self._block.find(literal, last, end)
        return None

    def _find_tracebacks(self, begin: int, end: int) -> None:
        if self._base + begin == 0 and (at := tracebacks.first_call_without_head(self._block[:TRACEBACK_BYTES])) >= 0:
            self._parse_traceback(at)
        for word in tracebacks.HEADS:
            at = self._block.find(word, begin, end)
            while at >= 0 and len(self._exceptions) < MAX_TRACEBACKS and self._parsed < _MAX_PARSED:
                self._parse_traceback(at)
                at = self._block.find(word, at + 1, end)

    def _parse_traceback(self, at: int) -> None:
        self._parsed += 1
        found = tracebacks.root_exception(self._block, at)
        if found and lines.without_prefix(found[1]) not in self._exceptions:  # only the first of many ranks
            self._exceptions.add(lines.without_prefix(found[1]))
            self._add_hit(*found, None)

    def _add_hit(self, offset: int, line: bytes, rule: Rule | None) -> None:
        time = lines.last_time(self._block[max(offset - CONTEXT_BYTES, 0) : offset + len(line)])
        self.hits.append(Hit(self._log, self._base + offset, line.rstrip(b"\r"), rule, time))


def key(literal: bytes) -> bytes:
    """Return the word of a literal by which its rule is looked up: the longest complete one."""
    found = list(_WORD.finditer(literal))
    inner = [word[0] for word in found if word.start() > 0 and word.end() < len(literal)]
    return max(inner or [word[0] for word in found], key=len)


def _joined(block: bytes, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans extended to whole lines, with overlapping ones joined."""
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
