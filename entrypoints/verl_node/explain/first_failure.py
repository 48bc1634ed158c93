"""Decides whether a log line was fatal: by its level, and by the lines after it.

A warning is not a failure: a missing library, a low limit, a worker that Ray restarts. Unless a log shows that a
process ended badly (first_failure.yaml), a line is fatal only if no ordinary lines follow it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from verl_node.explain import rules
from verl_node.explain.logs import lines, tracebacks
from verl_node.explain.logs.scan import Hit

FILE = Path(__file__).parent / "first_failure.yaml"
AFTER_BYTES = 64 << 10
FEW = 3
"""Ordinary lines that may follow a fatal line."""
_LONGEST = 1000
_INFO = re.compile(rb"(?<![=\w])(?:INFO|DEBUG)\b|\[[\d: ,.-]+ [ID] \d|^\W*[ID]\d{4} ")
_WARNING = re.compile(
    rb"(?i:\b(?:warn(?:ing)?|ignor(?:ed|ing)|retrying|falling back)\b)|\[[\d: ,.-]+ W \d|\bW\d{4} |\[W |: W \w"
)
_RECORD = re.compile(rb"\d\d:\d\d:\d\d[^|]{0,40}\b(?:ERROR|WARNING|CRITICAL)\b|^(?:ERROR|WARNING|CRITICAL):\w")
_LATER = re.compile(rb"(?:\d\d:\d\d:\d\d[^|]{0,40}\b|^)(?:INFO|WARNING|DEBUG)\b")
# Lines of a program that does not continue: errors, stacks, shutdowns, and those of launchers, shells and trackers.
_BAD = re.compile(
    rb"(?i)\b\w*(?:error|exception|warn|fail|fatal|cannot|can.t|couldn.t|could not|unable|not found|no such|denied"
    rb"|refused|invalid|traceback|assert|abort|kill|died|dead|terminat|exit|shut|clos|leak|clean|signal|timed? ?out"
    rb"|cancel|crash|stack|repeated|core dump)"
)
_NOT_ORDINARY = re.compile(
    rb"^(?:\+ |\S{0,80}\$ |#\d+ |frame #\d|\d+ {2,}\S+ +0x|@ |PC: @|\*\*\*|wandb:|srun: |slurmstepd"
    rb"|/\S+\.(?:so|cc|cpp|cu|py)\b|For debugging|Compile with|Set |HYDRA_FULL|To append to your config"
    rb"|(?:Process )?[\w.-]+:\s*$|\S{1,40}:\d+: )"
)
_NCCL = b"NCCL INFO"
_WORD = re.compile(rb"\w\w")
_LINE = re.compile(rb"(?m)^.+$")
_HEAD = tracebacks.HEADS[0]
_CHAINED = (b"of the following exception:", b"another exception occurred:")


@lru_cache(maxsize=2)
def bad_end_pattern(*, restarted: bool = False) -> re.Pattern[bytes]:
    """Return a pattern of lines about a bad end.

    :param restarted: of those after which the process may have been restarted, else of the others.
    """
    chosen = [entry["pattern"] for entry in rules.read_yaml(FILE) if bool(entry.get("restarted")) == restarted]
    return re.compile(b"(?m)^.*(?:%s).*$" % "|".join(chosen).encode())


def find_bad_end(text: bytes) -> re.Match[bytes] | None:
    """Return the first line about a process that ended badly and was not restarted."""
    found = bad_end_pattern().search(text)
    restarts = list(bad_end_pattern(restarted=True).finditer(text))
    if restarts and _continues(text[restarts[-1].end() :]):
        return found
    return min((match for match in (found, *restarts[:1]) if match), key=lambda match: match.start(), default=None)


def find_restart(text: bytes) -> int | None:
    """Return the offset of the last restart, None if a bad end follows."""
    restarts = list(bad_end_pattern(restarted=True).finditer(text))
    if not restarts or bad_end_pattern().search(text, restarts[-1].end()):
        return None
    return restarts[-1].end() if _continues(text[restarts[-1].end() :]) else None


def _ordinary_lines(text: bytes) -> Iterator[bytes]:
    """Yield the lines that show that a program continues: no error, stack or launcher's line."""
    for found in _LINE.finditer(text):
        line = found[0][:_LONGEST]
        message = lines.without_prefix(line)
        if (
            _WORD.search(message)
            and _NCCL not in line
            and not _BAD.search(line)
            and not _NOT_ORDINARY.match(message)
            and not tracebacks.is_inside(message)
        ):
            yield line


def _continues(text: bytes) -> bool:
    return next(_ordinary_lines(text), None) is not None


def is_fatal(hit: Hit) -> bool:
    """Return whether a line is fatal in a log without another sign of how its process ended."""
    matching = [hit.rule] if hit.rule else [rule for rule in rules.load() if rule.find(hit.line)]
    if matching and all(rule.level == "warning" for rule in matching):
        return False
    if (record := _Traceback.read(hit)) is not None:
        return not (record.handled and record.last)
    head = hit.line[:_LONGEST]
    if _INFO.search(head):
        return False
    most = 0 if _WARNING.search(head) else FEW
    return sum(1 for _, _ in zip(range(most + 1), _ordinary_lines(hit.after(AFTER_BYTES)))) <= most


def is_passing(hit: Hit) -> bool:
    """Return whether a program continued after an information, warning or logged exception."""
    if (record := _Traceback.read(hit)) is not None:
        return record.handled
    head = hit.line[:_LONGEST]
    return bool(_INFO.search(head) or _WARNING.search(head)) and _continues(hit.after(AFTER_BYTES))


@dataclass(frozen=True)
class _Traceback:
    """A traceback: ``handled`` if a logger wrote it and its program later logged below error level, ``last`` if all
    later tracebacks were written by a logger."""

    handled: bool
    last: bool

    @classmethod
    def read(cls, hit: Hit) -> _Traceback | None:
        """Return the traceback that ends with a hit, None without one or below error level."""
        message = lines.without_prefix(hit.line)
        prefix = hit.line[: len(hit.line) - len(message)]
        if not tracebacks.is_exception(message) or _INFO.search(prefix) or _WARNING.search(prefix):
            return None
        before, after = hit.before(), hit.after(AFTER_BYTES)
        nearest, head = max(map(before.rfind, tracebacks.HEADS)), before.rfind(_HEAD)
        if head < 0 or tracebacks.root_exception(before + hit.line, nearest) != (len(before), hit.line):
            return None
        later = any(_LATER.search(found[0][:_LONGEST]) for found in _LINE.finditer(after) if _NCCL not in found[0])
        others = (found.start() for found in re.finditer(re.escape(_HEAD), after))
        return cls(later and _logged(before, head), all(_logged(after, at) for at in others))


def _logged(text: bytes, head: int) -> bool:
    """Return whether a logger's record precedes a traceback's head or chain."""
    above = text[:head].rstrip().rpartition(b"\n")
    while above[2].endswith(_CHAINED):
        head = above[0].rfind(_HEAD)
        if head < 0:  # the text begins within the chain
            return True
        above = above[0][:head].rstrip().rpartition(b"\n")
    return bool(_RECORD.search(above[2][:_LONGEST]))
