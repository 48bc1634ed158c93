"""Explains a failure that no rule matches: its traceback and the part of the stack it came from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from verl_node.explain import first_failure, stack_parts
from verl_node.explain.logs import recovery, tracebacks
from verl_node.explain.logs.scan import TRACEBACK_BYTES, Hit
from verl_node.explain.logs.sources import Log
from verl_node.explain.report import PAGE, Explanation, clean, host, number
from verl_node.explain.stack_parts import Placed

_SHOWN_LINES = 12
_AFTER_BYTES = 4 << 10
_READ_ON = f"read what stands before this line; when it is clear, it may become a rule ({PAGE})."


def of_exception(hit: Hit, hosts: Mapping[str, str], consequences: Sequence[str] = ()) -> Explanation:
    """Return what an exception tells, placed by what led to it."""
    traceback = tracebacks.leading_to(_before(hit), hit.line) or tracebacks.following(_after(hit))
    placed = stack_parts.of_exception(tracebacks.saying(hit.line, _after(hit)), traceback)
    shown = tuple(clean(line.encode()) for line in traceback[-_SHOWN_LINES:])
    told = _told(hit, hosts, f"the first exception is {clean(hit.line)}", placed)
    return replace(told, consequences=tuple(consequences), traceback=shown)


def of_ending(logs: Sequence[Log], hosts: Mapping[str, str], *, failed: bool = False) -> Explanation | None:
    """Return what a log without a rule's line or a traceback ends with: an exception, a refusal, a bad end, or None.

    :param failed: it is known that the job did, so that every log has an answer.
    """
    for log in (log for log in logs if log.first):
        tail = recovery.tail(log.path)
        badly = first_failure.worst(tail)
        sure = bool(failed or badly)
        raised = (_lasting(log, tail, found, sure=sure) for found in recovery.exceptions(tail))
        if (hit := next(filter(None, raised), None)) is not None:
            return of_exception(hit, hosts)
        complaint = None if badly else recovery.complaint(tail)
        for found, placed in stack_parts.of_tail(tail, ended_badly=bool(sure or complaint)):
            if (hit := _lasting(log, tail, found, sure=sure)) is not None:
                return _told(hit, hosts, f"the first line that says something is {clean(hit.line)}", placed)
        if badly:
            said = list(recovery.SAYS.finditer(tail, 0, badly.start()))[-1:]
            found = said[0] if said else badly
            hit = Hit(log, log.path.stat().st_size - len(tail) + found.start(), found[0], None, None)
            why = "the last line before says something" if said else "no line before it says why"
            return _told(hit, hosts, f"a process ended badly, and {why}", None)
        if (hit := _lasting(log, tail, complaint, sure=sure)) is not None:
            return _told(hit, hosts, "the log ends with what a program complains of", None)
    return next(_last_words(logs, hosts), None) if failed else None


def _last_words(logs: Sequence[Log], hosts: Mapping[str, str]) -> Iterator[Explanation]:
    """Return what may be why a job failed, likeliest first: what its logs last complain of, or their end."""
    tails = [(log, recovery.tail(log.path)) for log in logs if log.first]
    for log, tail in tails:
        if (hit := _lasting(log, tail, recovery.last_complaint(tail), sure=True)) is not None:
            yield _told(hit, hosts, "the last lines that complain begin here", stack_parts.of_exception(hit.line, []))
    for log, tail in tails:
        if lines := [found for found in re.finditer(rb"(?m)^.+$", tail) if found[0].strip()]:
            hit = Hit(log, log.path.stat().st_size - len(tail) + lines[-1].start(), lines[-1][0], None, None)
            yield _told(hit, hosts, "the log ends here, and no line of its end complains", None)


def _lasting(log: Log, tail: bytes, found: re.Match[bytes] | None, *, sure: bool) -> Hit | None:
    """Return the place of a line in a log, None where the job lived on after it.

    :param sure: it is known that the job failed; else a line that is not fatal is none.
    """
    if found is None:
        return None
    hit = Hit(log, log.path.stat().st_size - len(tail) + found.start(), found[0], None, None)
    if recovery.survived(hit) is not None or recovery.ended_well(hit):
        return None
    return hit if sure or first_failure.fatal(hit) else None


def _told(hit: Hit, hosts: Mapping[str, str], seen: str, placed: Placed | None) -> Explanation:
    if placed is None:
        kind, cause, fix = "unknown", f"No rule knows this failure; {seen}", _READ_ON.capitalize()
    else:
        kind = placed.place.kind
        where = f"by where it failed it is {kind}'s, {placed.place.what}: {placed.told}"
        cause, fix = f"No rule knows this failure; {where}; {seen}", f"{placed.place.fix} Else {_READ_ON}"
    references = (PAGE, *(placed.place.references if placed else ()))
    file, line = str(hit.log.path), clean(hit.line)
    return Explanation(kind, cause, host(hit, hosts), file, line, fix, references, number=number(hit))


def _before(hit: Hit) -> bytes:
    """Return what stands before a line, as far as a traceback may begin."""
    begin = max(hit.offset - TRACEBACK_BYTES, 0)
    with hit.log.path.open("rb") as file:
        file.seek(begin)
        text = file.read(hit.offset - begin)
    return text.partition(b"\n")[2] if begin else text


def _after(hit: Hit) -> bytes:
    with hit.log.path.open("rb") as file:
        file.seek(hit.offset + len(hit.line))
        return file.read(_AFTER_BYTES).partition(b"\n")[2]
