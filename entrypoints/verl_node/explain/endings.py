"""Whether a line of a log was fatal: what a line's own level says, and what follows it.

A warning is no failure: a library that is not there, a limit that is low, a worker that Ray starts again. Where a log does not say
that a process ended badly (endings.yaml), a line is fatal only if the log does not go on after it with ordinary lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from verl_node.explain import lines, rules, tracebacks
from verl_node.explain.scan import TRACEBACK_BYTES, Hit

FILE = Path(__file__).parent / "endings.yaml"
AFTER_BYTES = 64 << 10
FEW = 3
"""Ordinary lines that may follow a fatal line which is no warning: its own words, wrapped, and what other ranks still write."""
_LONGEST = 1000
_INFO = re.compile(rb"(?<![=\w])(?:INFO|DEBUG)\b|\[[\d: ,.-]+ [ID] \d|^\W*[ID]\d{4} ")
_WARNING = re.compile(rb"(?i:\bwarn(?:ing)?\b)|\[[\d: ,.-]+ W \d|\bW\d{4} |\[W |: W \w|\b(?:ignor(?:ed|ing)|retrying|falling back)\b")
_RECORD = re.compile(rb"(?:\d\d:\d\d:\d\d|\b(?=[A-Z]+:\w))[^|]{0,40}\b(?:ERROR|WARNING|CRITICAL)\b|^(?:ERROR|WARNING|CRITICAL):\w")
_LATER = re.compile(rb"(?:\d\d:\d\d:\d\d[^|]{0,40}\b|^)(?:INFO|WARNING|DEBUG)\b")
# What no program writes that goes on: complaints, stacks, what is wound up, what launchers, shells and trackers say.
_BAD = re.compile(
    rb"(?i)\b\w*(?:error|exception|warn|fail|fatal|cannot|can.t|couldn.t|could not|unable|not found|no such|denied|refused|invalid"
    rb"|traceback|assert|abort|kill|died|dead|terminat|exit|shut|clos|leak|clean|signal|timed? ?out|cancel|crash|stack|repeated"
    rb"|core dump)"
)
_OTHERS = re.compile(
    rb"^(?:\+ |\S{0,80}\$ |#\d+ |frame #\d|\d+ {2,}\S+ +0x|@ |PC: @|\*\*\*|wandb:|srun: |slurmstepd|/\S+\.(?:so|cc|cpp|cu|py)\b|NCCL INFO"
    rb"|For debugging|Compile with|Set |HYDRA_FULL|To append to your config|(?:Process )?[\w.-]+:\s*$|\S{1,40}:\d+: )"
)
_NCCL = b"NCCL INFO"
_WORD = re.compile(rb"\w\w")
_LINE = re.compile(rb"(?m)^.+$")
_HEAD = tracebacks.BEGINS[0]


@lru_cache(maxsize=1)
def _entries() -> list[dict[str, Any]]:
    return list(yaml.load(FILE.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)))  # noqa: S506  safe


@lru_cache(maxsize=2)
def bad(*, restarted: bool = False) -> re.Pattern[bytes]:
    """Return what whole lines that tell of a bad end have; those after which a process may have been started again, or the others."""
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
    words = lines.bare(hit.line)
    before = hit.line[: len(hit.line) - len(words)]
    head = _before(hit).rfind(_HEAD) if tracebacks.raised(words) and not _harmless(before) else -1
    if head >= 0:
        return not _handled(hit, head)
    if _INFO.search(hit.line[:_LONGEST]):
        return False
    most = 0 if _WARNING.search(hit.line[:_LONGEST]) else FEW
    return sum(1 for _, _ in zip(range(most + 1), ordinary(_after(hit)))) <= most


def _harmless(prefix: bytes) -> bool:
    return bool(_INFO.search(prefix) or _WARNING.search(prefix))


def _handled(hit: Hit, head: int) -> bool:
    """Tell whether an exception is a logger's record, after which its program went on to write others below an error."""
    if not _logged(_before(hit), head):
        return False
    after = _after(hit)
    heads = [found.start() for found in re.finditer(re.escape(_HEAD), after)]
    return all(_logged(after, at) for at in heads) and any(
        _LATER.search(found[0][:_LONGEST]) for found in _LINE.finditer(after) if _NCCL not in found[0]
    )


def _logged(text: bytes, head: int) -> bool:
    """Tell whether the line before a traceback's head is a logger's record."""
    begin = text.rfind(b"\n", 0, head) + 1
    above = text[text.rfind(b"\n", 0, max(begin - 1, 0)) + 1 : begin]
    return bool(_RECORD.search(above[:_LONGEST]))


def _before(hit: Hit) -> bytes:
    begin = max(hit.offset - TRACEBACK_BYTES, 0)
    with hit.log.path.open("rb") as file:
        file.seek(begin)
        return file.read(hit.offset - begin)


def _after(hit: Hit) -> bytes:
    with hit.log.path.open("rb") as file:
        file.seek(hit.offset + len(hit.line))
        return file.read(AFTER_BYTES).partition(b"\n")[2]
