"""Decides whether a log line was fatal: by its level, and by the lines after it.

A warning is no failure: a library that is not there, a limit that is low, a worker that Ray starts again. Where a log
does not say that a process ended badly (first_failure.yaml), a line is fatal only if no ordinary lines of the log
follow it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from verl_node.explain import rules
from verl_node.explain.logs import lines, tracebacks
from verl_node.explain.logs.scan import TRACEBACK_BYTES, Hit

FILE = Path(__file__).parent / "first_failure.yaml"
AFTER_BYTES = 64 << 10
FEW = 3
"""Ordinary lines that may follow a fatal line that is no warning: the rest of its words, and what others write."""
_LONGEST = 1000
_INFO = re.compile(rb"(?<![=\w])(?:INFO|DEBUG)\b|\[[\d: ,.-]+ [ID] \d|^\W*[ID]\d{4} ")
_WARNING = re.compile(
    rb"(?i:\b(?:warn(?:ing)?|ignor(?:ed|ing)|retrying|falling back)\b)|\[[\d: ,.-]+ W \d|\bW\d{4} |\[W |: W \w"
)
_RECORD = re.compile(rb"\d\d:\d\d:\d\d[^|]{0,40}\b(?:ERROR|WARNING|CRITICAL)\b|^(?:ERROR|WARNING|CRITICAL):\w")
_LATER = re.compile(rb"(?:\d\d:\d\d:\d\d[^|]{0,40}\b|^)(?:INFO|WARNING|DEBUG)\b")
# What no program writes that goes on: complaints, stacks, what is wound up, what launchers, shells and trackers say.
_BAD = re.compile(
    rb"(?i)\b\w*(?:error|exception|warn|fail|fatal|cannot|can.t|couldn.t|could not|unable|not found|no such|denied"
    rb"|refused|invalid|traceback|assert|abort|kill|died|dead|terminat|exit|shut|clos|leak|clean|signal|timed? ?out"
    rb"|cancel|crash|stack|repeated|core dump)"
)
_OTHERS = re.compile(
    rb"^(?:\+ |\S{0,80}\$ |#\d+ |frame #\d|\d+ {2,}\S+ +0x|@ |PC: @|\*\*\*|wandb:|srun: |slurmstepd"
    rb"|/\S+\.(?:so|cc|cpp|cu|py)\b|For debugging|Compile with|Set |HYDRA_FULL|To append to your config"
    rb"|(?:Process )?[\w.-]+:\s*$|\S{1,40}:\d+: )"
)
_NCCL = b"NCCL INFO"
_WORD = re.compile(rb"\w\w")
_LINE = re.compile(rb"(?m)^.+$")
_HEAD = tracebacks.BEGINS[0]
_CHAINED = (b"of the following exception:", b"another exception occurred:")


@lru_cache(maxsize=1)
def _entries() -> list[dict[str, Any]]:
    return list(yaml.load(FILE.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)))  # noqa: S506  safe


@lru_cache(maxsize=2)
def bad(*, restarted: bool = False) -> re.Pattern[bytes]:
    """Return a pattern of lines that tell of a bad end.

    :param restarted: of those after which the process may have been started again, else of the others.
    """
    chosen = [entry["pattern"] for entry in _entries() if bool(entry.get("restarted")) == restarted]
    return re.compile(b"(?m)^.*(?:%s).*$" % "|".join(chosen).encode())


def worst(text: bytes) -> re.Match[bytes] | None:
    """Return the first line of a log's end that says that a process ended badly and was not started again."""
    found = bad().search(text)
    again = list(bad(restarted=True).finditer(text))
    if again and next(ordinary(text[again[-1].end() :]), None) is not None:
        return found
    return min((match for match in (found, *again[:1]) if match), key=lambda match: match.start(), default=None)


def restarted(text: bytes) -> int | None:
    """Return where a process that ended badly was started again: the last time, and nothing after it ended badly."""
    again = list(bad(restarted=True).finditer(text))
    if not again or bad().search(text, again[-1].end()):
        return None
    return again[-1].end() if next(ordinary(text[again[-1].end() :]), None) is not None else None


def ordinary(text: bytes) -> Iterator[bytes]:
    """Return the lines by which a program shows that it goes on: no complaint, stack or launcher's word."""
    for found in _LINE.finditer(text):
        line = found[0][:_LONGEST]
        words = lines.bare(line)
        if (
            _WORD.search(words)
            and _NCCL not in line
            and not _BAD.search(line)
            and not _OTHERS.match(words)
            and not tracebacks.inside(words)
        ):
            yield line


def fatal(hit: Hit) -> bool:
    """Tell whether a line is fatal in a log that does not say elsewhere how its process ended."""
    known = [hit.rule] if hit.rule else [rule for rule in rules.load() if rule.find(hit.line)]
    if known and all(rule.level == "warning" for rule in known):
        return False
    if (record := _Traceback.read(hit)) is not None:
        return not (record.handled and record.last)
    head = hit.line[:_LONGEST]
    if _INFO.search(head):
        return False
    most = 0 if _WARNING.search(head) else FEW
    return sum(1 for _, _ in zip(range(most + 1), ordinary(_after(hit)))) <= most


def passing(hit: Hit) -> bool:
    """Tell whether a line is for information, a warning or a logged exception, and its program went on after it."""
    if (record := _Traceback.read(hit)) is not None:
        return record.handled
    head = hit.line[:_LONGEST]
    return bool(_INFO.search(head) or _WARNING.search(head)) and next(ordinary(_after(hit)), None) is not None


@dataclass(frozen=True)
class _Traceback:
    """What a traceback is that ends with a line: ``handled`` if a logger wrote it and its program wrote more below an
    error, ``last`` if no other came after it that no logger wrote."""

    handled: bool
    last: bool

    @classmethod
    def read(cls, hit: Hit) -> _Traceback | None:
        """Return None for a line that ends no traceback, or one that a logger calls harmless."""
        words = lines.bare(hit.line)
        prefix = hit.line[: len(hit.line) - len(words)]
        if not tracebacks.raised(words) or _INFO.search(prefix) or _WARNING.search(prefix):
            return None
        before, after = _before(hit), _after(hit)
        nearest, head = max(map(before.rfind, tracebacks.BEGINS)), before.rfind(_HEAD)
        if head < 0 or tracebacks.root(before + hit.line, nearest) != (len(before), hit.line):
            return None
        later = any(_LATER.search(found[0][:_LONGEST]) for found in _LINE.finditer(after) if _NCCL not in found[0])
        others = (found.start() for found in re.finditer(re.escape(_HEAD), after))
        return cls(later and _logged(before, head), all(_logged(after, at) for at in others))


def _logged(text: bytes, head: int) -> bool:
    """Tell whether the line before a traceback's head is a logger's record; of a chain, before the first one's head."""
    above = text[:head].rstrip().rpartition(b"\n")
    while above[2].endswith(_CHAINED):
        head = above[0].rfind(_HEAD)
        if head < 0:  # of the chain that the text begins in
            return True
        above = above[0][:head].rstrip().rpartition(b"\n")
    return bool(_RECORD.search(above[2][:_LONGEST]))


def _before(hit: Hit) -> bytes:
    begin = max(hit.offset - TRACEBACK_BYTES, 0)
    with hit.log.path.open("rb") as file:
        file.seek(begin)
        return file.read(hit.offset - begin)


def _after(hit: Hit) -> bytes:
    with hit.log.path.open("rb") as file:
        file.seek(hit.offset + len(hit.line))
        return file.read(AFTER_BYTES).partition(b"\n")[2]
