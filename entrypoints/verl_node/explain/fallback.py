"""Explains a failure that no rule matches: by its traceback and the part of the stack that raised it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from verl_node.explain import first_failure, stack_parts
from verl_node.explain.logs import recovery, tracebacks
from verl_node.explain.logs.scan import Hit
from verl_node.explain.logs.sources import Log
from verl_node.explain.report import PAGE, Explanation, clean, host, number

_SHOWN_LINES = 12
_AFTER_BYTES = 4 << 10
_READ_BEFORE = f"read the lines before this one; once the cause is known, it may become a rule ({PAGE})."


def explain_exception(hit: Hit, hosts: Mapping[str, str], consequences: Sequence[str] = ()) -> Explanation:
    """Return the explanation of an exception by its traceback."""
    after = hit.after(_AFTER_BYTES)
    traceback = tracebacks.ending_with(hit.before(), hit.line) or tracebacks.calls_after(after)
    match = stack_parts.match_exception(tracebacks.full_message(hit.line, after), traceback)
    shown = tuple(clean(line.encode()) for line in traceback[-_SHOWN_LINES:])
    explanation = _explanation(hit, hosts, f"the first exception is {clean(hit.line)}", match)
    return replace(explanation, consequences=tuple(consequences), traceback=shown)


def explain_ending(logs: Sequence[Log], hosts: Mapping[str, str], *, failed: bool = False) -> Explanation | None:
    """Return the explanation of a log's end without a rule or traceback: an exception, an error, a bad end, or None.

    :param failed: the job is known to have failed, so every log gets an explanation.
    """
    for log in (log for log in logs if log.main):
        tail = recovery.tail(log.path)
        bad_end = first_failure.find_bad_end(tail)
        sure = bool(failed or bad_end)
        exceptions = (_final_hit(log, tail, found, sure=sure) for found in recovery.exceptions(tail))
        if (hit := next(filter(None, exceptions), None)) is not None:
            return explain_exception(hit, hosts)
        complaint = None if bad_end else recovery.final_complaint(tail)
        for found, match in stack_parts.match_tail(tail, ended_badly=bool(sure or complaint)):
            if (hit := _final_hit(log, tail, found, sure=sure)) is not None:
                return _explanation(hit, hosts, f"the first error message is {clean(hit.line)}", match)
        if bad_end:
            errors = list(recovery.ERROR_LINE.finditer(tail, 0, bad_end.start()))[-1:]
            hit = Hit.in_tail(log, tail, errors[0] if errors else bad_end)
            why = "the last error message before is this one" if errors else "no line before it has a reason"
            return _explanation(hit, hosts, f"a process ended badly, and {why}", None)
        if (hit := _final_hit(log, tail, complaint, sure=sure)) is not None:
            return _explanation(hit, hosts, "the log ends with the error message of a program", None)
    return next(_last_lines(logs, hosts), None) if failed else None


def _last_lines(logs: Sequence[Log], hosts: Mapping[str, str]) -> Iterator[Explanation]:
    """Yield possible reasons, likeliest first: last error messages, or ends of logs."""
    tails = [(log, recovery.tail(log.path)) for log in logs if log.main]
    for log, tail in tails:
        if (hit := _final_hit(log, tail, recovery.last_errors(tail), sure=True)) is not None:
            match = stack_parts.match_exception(hit.line, [])
            yield _explanation(hit, hosts, "the last error messages begin with this line", match)
    for log, tail in tails:
        if lines := [found for found in re.finditer(rb"(?m)^.+$", tail) if found[0].strip()]:
            hit = Hit.in_tail(log, tail, lines[-1])
            yield _explanation(hit, hosts, "the log ends with this line, without an error message", None)


def _final_hit(log: Log, tail: bytes, found: re.Match[bytes] | None, *, sure: bool) -> Hit | None:
    """Return the hit of a line, None if the job survived it or Python ignored it.

    :param sure: the job is known to have failed; otherwise a line that is not fatal does not count.
    """
    if found is None:
        return None
    hit = Hit.in_tail(log, tail, found)
    before = hit.before()
    if tracebacks.is_ignored(before + hit.line, len(before), len(before)):
        return None
    if recovery.survived(hit) is not None or recovery.ended_well(hit):
        return None
    return hit if sure or first_failure.is_fatal(hit) else None


def _explanation(hit: Hit, hosts: Mapping[str, str], seen: str, match: stack_parts.Match | None) -> Explanation:
    if match is None:
        kind, cause, fix = "unknown", f"No rule matches this failure; {seen}", _READ_BEFORE.capitalize()
        references: tuple[str, ...] = ()
    else:
        part, references = match.part, match.part.references
        kind = part.kind
        guess = f"its class, {kind}, is a guess from {match.evidence}: {part.what}"
        cause = f"No rule matches this failure; {guess}; {seen}"
        fix = f"{part.fix} Otherwise {_READ_BEFORE}"
    file, line = str(hit.log.path), clean(hit.line)
    return Explanation(kind, cause, host(hit, hosts), file, line, fix, (PAGE, *references), number=number(hit))
