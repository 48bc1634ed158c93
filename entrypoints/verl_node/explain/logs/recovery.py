"""Detects from the lines after a failure whether the training survived it."""

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
_MIN_PROGRESS = 10
"""Progress lines after a failure that show that it was survived, in a log without steps."""
# verl's own line of a step, tqdm's name for verl's loop, the trainers' of transformers and TRL.
_STEP = re.compile(rb"(?:\bstep:\d+ - |Training Progress: +\d+%|\{'loss': )")
_BAR = re.compile(rb"Training Progress: +(\d+%(?:\|[^|\n]{0,120}\| *\d+)?)")
_STEP_BYTES = 256
_MARKS = (b"step:", b"Training Progress:", b"{'loss'")
_PROGRESS = re.compile(
    rb"(?m)^.*(?:(?<!NCCL )\bINFO\b|it/s\]|s/it\]|\b[Ss]tep[ :=]+\d+|\b[Ee]poch[ :=]+\d+|\bloss[ :=]+\d).*$"
)
# Lines of other processes that shut down, which often log at INFO, are not progress.
_SHUTDOWN = re.compile(rb"(?i)\b(?:exit|terminat|shut|clos|kill|dead|died|leak|abort|clean)")
_WELL = re.compile(rb"(?m)verdict: 0 \(|Training ended with code 0")
_DONE = b"Final validation metrics: "
"""verl's last line, after its last checkpoint (ray_trainer.py: fit); then it only stops its workers."""
_ALL_STEPS = b"Training Progress: 100%"
"""The last update of verl's progress bar; it is written before or after _DONE, or without it."""
# An exception without a traceback, or the error of a native program, after any prefix.
_EXCEPTION = re.compile(
    rb"^(?:(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .*"
    rb"|\s*what\(\): .*|Memory access fault by GPU.*|:0:rocdevice\S+ .*HSA_STATUS_ERROR.*|HW Exception by GPU.*"
    rb"|Fatal Python error: .*|ptxas fatal .*|THCudaCheck FAIL .*|terminate called without an active exception)"
)
_LINE = re.compile(rb"(?m)^.+$")
_HARMLESS = re.compile(rb"(?i:\b(?:info|warn(?:ing)?|debug)\b)")
ERROR_LINE = re.compile(
    rb"(?m)^(?!.*(?:(?i:\binfo\b|\bwarn|\bdebug\b)| FAILED$)).*"
    rb"(?i:\b(?:error|fatal|failed|cannot|could not|unable to|not found|too (?:small|large|many|few)|no such|denied"
    rb"|refused)\b).*$"
)
"""A line with an error message; used only for lines before a bad end."""
_COMPLAINT = re.compile(
    rb"^(?!.*(?i:\binfo\b|\bwarn|\bdebug\b))(?:[A-Za-z./][\w./+-]{0,80}: )(?:line )?(?:\d{1,5}: )?.*"
    rb"(?:not found|No such file or directory|[Pp]ermission denied|not permitted"
    rb"|\b[Cc]annot\b|\b[Ff]ailed\b|\b[Ff]atal\b)"
)


def exceptions(text: bytes) -> Iterator[re.Match[bytes]]:
    """Yield the lines that are an exception, except those logged below error level."""
    for found in _LINE.finditer(text):
        message = lines.without_prefix(found[0])
        prefix = found[0][: len(found[0]) - len(message)]
        if _EXCEPTION.fullmatch(message) and tracebacks.is_root(message) and not _HARMLESS.search(prefix):
            yield found


def final_complaint(text: bytes) -> re.Match[bytes] | None:
    """Return the last line if it is the error message of a command, such as "sh: x: not found"."""
    found = list(_LINE.finditer(text.rstrip()))[-1:]
    return found[0] if found and _COMPLAINT.match(found[0][0]) else None


def last_errors(text: bytes) -> re.Match[bytes] | None:
    """Return the first line of the last group of consecutive error messages."""
    group: list[re.Match[bytes]] = []
    for found in _LINE.finditer(text):
        is_error = ERROR_LINE.match(text, found.start(), found.end())
        if is_error and group and group[-1].end() + 1 == found.start():
            group.append(found)
        elif is_error:
            group = [found]
    return group[0] if group else None


def survived(hit: Hit) -> int | None:
    """Return an offset after the hit at which the training continued, None if it did not.

    In a log that ends badly, or soon after the hit, only a later step counts.
    """
    step = last_step(hit.log.path)
    if step is not None and step > hit.offset:
        return step
    restart = _last_restart(hit.log.path)
    if restart is not None and restart > hit.offset:
        return restart
    if step is not None or ended_badly(hit.log.path):
        return None
    with hit.log.path.open("rb") as file:
        file.seek(hit.offset + len(hit.line))
        progress = [found for found in _PROGRESS.finditer(file.read(_END_BYTES)) if not _SHUTDOWN.search(found[0])]
    return hit.offset + len(hit.line) + progress[-1].end() if len(progress) >= _MIN_PROGRESS else None


@lru_cache(maxsize=64)
def last_step(path: Path) -> int | None:
    """Return the offset of the last step in a log.

    tqdm draws its bar once more when it is closed, also by an exception; a bar with the count of the one before it is
    not a step.
    """
    step: int | None = None
    bar: tuple[int, bytes] | None = None
    for offset, text in _steps_backwards(path):
        found = _BAR.match(text)
        if found is None:
            step = offset if step is None else step
        elif bar is None or found[1] == bar[1]:
            bar = offset, found[1]
        else:
            break
        if step is not None and (bar is None or bar[0] < step):
            return step
    return bar[0] if bar else step


def _steps_backwards(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield offset and begin of the steps of a log, the last one first."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        before = end  # steps from here on have been yielded
        while end > 0:
            begin = max(end - _BLOCK_BYTES, 0)
            file.seek(begin)
            block = file.read(end - begin)
            last = {mark: block.rfind(mark) for mark in _MARKS}
            while (at := max(last.values())) >= 0:
                if begin + at < before and _STEP.match(block, at):
                    yield begin + at, block[at : at + _STEP_BYTES]
                    before = begin + at
                last = {mark: block.rfind(mark, 0, at) if found == at else found for mark, found in last.items()}
            end = begin + _STEP_BYTES if begin else 0  # a step may span two blocks


def ended_well(hit: Hit) -> bool:
    """Return whether the job ended well after the hit, or before it without a step in between."""
    text = tail(hit.log.path)
    begin = hit.log.path.stat().st_size - len(text)
    return _follows(hit, text, _DONE) or any(begin + found.start() > hit.offset for found in _WELL.finditer(text))


def follows_training(hit: Hit) -> bool:
    """Return whether verl had made all steps before the hit, as when Ray kills the data loader's processes."""
    return _follows(hit, tail(hit.log.path), _DONE, _ALL_STEPS)


def _follows(hit: Hit, text: bytes, *marks: bytes) -> bool:
    """Return whether the last of the marks in the log's tail is before the hit, and no step after it."""
    mark = max(map(text.rfind, marks))
    at = hit.log.path.stat().st_size - len(text) + mark
    return mark >= 0 and hit.offset > at >= (last_step(hit.log.path) or -1)


def ended_badly(path: Path) -> bool:
    """Return whether a process ended badly in the last lines of a log and was not restarted."""
    return first_failure.find_bad_end(tail(path)) is not None


def _last_restart(path: Path) -> int | None:
    """Return the offset of a restart after which no process ended badly."""
    text = tail(path)
    restart = first_failure.find_restart(text)
    return None if restart is None else path.stat().st_size - len(text) + restart


def tail(path: Path) -> bytes:
    """Return the last lines of a log; of a very long line, a part without a cut secret."""
    with path.open("rb") as file:
        before = max(file.seek(0, 2) - _END_BYTES, 0)
        file.seek(before)
        text = file.read()
    return text[(text.find(b"\n") + 1 or LONGEST) :] if before else text
