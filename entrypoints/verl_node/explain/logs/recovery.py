"""Log content after a line: whether the training went on, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from verl_node.explain import first_failure
from verl_node.explain.logs import lines, tracebacks
from verl_node.explain.logs.scan import Hit
from verl_node.reporting.masking import LONGEST

_BLOCK_BYTES = 4 << 20
_END_BYTES = 64 << 10
_FEW = 10
"""Lines of ordinary life after a failure, by which it is taken for survived where a log tells no steps."""
# verl's own line of a step, tqdm's name for verl's loop, the trainers' of transformers and TRL.
_STEP = re.compile(rb"(?:\bstep:\d+ - |Training Progress: +\d+%|\{'loss': )")
_MARKS = (b"step:", b"Training Progress:", b"{'loss'")
_LIFE = re.compile(
    rb"(?m)^.*(?:(?<!NCCL )\bINFO\b|it/s\]|s/it\]|\b[Ss]tep[ :=]+\d+|\b[Ee]poch[ :=]+\d+|\bloss[ :=]+\d).*$"
)
# Nor is it life when the others end, with as much INFO as they began.
_ENDING = re.compile(rb"(?i)\b(?:exit|terminat|shut|clos|kill|dead|died|leak|abort|clean)")
_WELL = re.compile(rb"(?m)verdict: 0 \(|Training ended with code 0")
_DONE = b"Final validation metrics: "
"""verl's last word, after its last checkpoint (ray_trainer.py: fit); then its workers are only taken down."""
# One that nobody printed a traceback for, or a native program's last words, behind whatever prefix.
_EXCEPTION = re.compile(
    rb"^(?:(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .*"
    rb"|\s*what\(\): .*|Memory access fault by GPU.*|:0:rocdevice\S+ .*HSA_STATUS_ERROR.*|HW Exception by GPU.*"
    rb"|Fatal Python error: .*|ptxas fatal .*|THCudaCheck FAIL .*|terminate called without an active exception)"
)
_LINE = re.compile(rb"(?m)^.+$")
_HARMLESS = re.compile(rb"(?i:\b(?:info|warn(?:ing)?|debug)\b)")
SAYS = re.compile(
    rb"(?m)^(?!.*(?:(?i:\binfo\b|\bwarn|\bdebug\b)| FAILED$)).*"
    rb"(?i:\b(?:error|fatal|failed|cannot|could not|unable to|not found|too (?:small|large|many|few)|no such|denied"
    rb"|refused)\b).*$"
)
"""A line that tells of a failure in words of its own; only asked for what stands before a bad end."""
_COMPLAINT = re.compile(
    rb"^(?!.*(?i:\binfo\b|\bwarn|\bdebug\b))(?:[A-Za-z./][\w./+-]{0,80}: )(?:line )?(?:\d{1,5}: )?.*"
    rb"(?:not found|No such file or directory|[Pp]ermission denied|not permitted"
    rb"|\b[Cc]annot\b|\b[Ff]ailed\b|\b[Ff]atal\b)"
)


def exceptions(text: bytes) -> Iterator[re.Match[bytes]]:
    """Return the lines that are an exception of their own, and not one that a logger calls harmless."""
    for found in _LINE.finditer(text):
        words = lines.bare(found[0])
        before = found[0][: len(found[0]) - len(words)]
        if _EXCEPTION.fullmatch(words) and tracebacks.tells(words) and not _HARMLESS.search(before):
            yield found


def complaint(text: bytes) -> re.Match[bytes] | None:
    """Return the last line where it is what a program of the system says when it does not go on: "sh: x: not found"."""
    found = list(_LINE.finditer(text.rstrip()))[-1:]
    return found[0] if found and _COMPLAINT.match(found[0][0]) else None


def last_complaint(text: bytes) -> re.Match[bytes] | None:
    """Return the first of the last lines, one after the other, that tell of a failure in words of their own."""
    group: list[re.Match[bytes]] = []
    for found in _LINE.finditer(text):
        says = SAYS.match(text, found.start(), found.end())
        if says and group and group[-1].end() + 1 == found.start():
            group.append(found)
        elif says:
            group = [found]
    return group[0] if group else None


def survived(hit: Hit) -> int | None:
    """Return where the training was seen to go on after a line, None where it was not.

    A log that ends badly, or within little of the line, survived nothing but what a later step tells.
    """
    step = last_step(hit.log.path)
    if step is not None and step > hit.offset:
        return step
    again = _restarted(hit.log.path)
    if again is not None and again > hit.offset:
        return again
    if step is not None or ended_badly(hit.log.path):
        return None
    with hit.log.path.open("rb") as file:
        file.seek(hit.offset + len(hit.line))
        life = [found for found in _LIFE.finditer(file.read(_END_BYTES)) if not _ENDING.search(found[0])]
    return hit.offset + len(hit.line) + life[-1].end() if len(life) >= _FEW else None


@lru_cache(maxsize=64)
def last_step(path: Path) -> int | None:
    """Return the offset of the last step that a log tells."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        while end > 0:
            begin = max(end - _BLOCK_BYTES, 0)
            file.seek(begin)
            block = file.read(end - begin)
            at = max(block.rfind(mark) for mark in _MARKS)
            while at >= 0 and not _STEP.match(block, at):
                at = max(block.rfind(mark, 0, at) for mark in _MARKS)
            if at >= 0:
                return begin + at
            end = begin + 64 if begin else 0  # a mark may lie across
    return None


def ended_well(hit: Hit) -> bool:
    """Tell whether a log's last lines say that the job ended well: after this one, or before it and no step since."""
    text = tail(hit.log.path)
    begin = hit.log.path.stat().st_size - len(text)
    done = text.rfind(_DONE)
    if done >= 0 and hit.offset > begin + done > (last_step(hit.log.path) or -1):
        return True
    return any(begin + found.start() > hit.offset for found in _WELL.finditer(text))


def ended_badly(path: Path) -> bool:
    """Tell whether the last lines of a log say that a process ended badly, and was not started again."""
    return first_failure.worst(tail(path)) is not None


def _restarted(path: Path) -> int | None:
    """Return the offset from which a process runs that was started again and did not end badly."""
    text = tail(path)
    again = first_failure.restarted(text)
    return None if again is None else path.stat().st_size - len(text) + again


def tail(path: Path) -> bytes:
    """Return the end of a log: whole lines, or of one that is longer the end without what may be half a secret."""
    with path.open("rb") as file:
        before = max(file.seek(0, 2) - _END_BYTES, 0)
        file.seek(before)
        text = file.read()
    return text[(text.find(b"\n") + 1 or LONGEST) :] if before else text
