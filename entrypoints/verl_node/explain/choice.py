"""Chooses the first failure among the lines that matched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from verl_node.explain import fallback, first_failure
from verl_node.explain.logs import recovery, scan
from verl_node.explain.logs.scan import Hit, Scanned
from verl_node.explain.outcome import Verdict
from verl_node.explain.report import Explanation, of_nothing, of_rule, of_verdict
from verl_node.explain.rules import Rule


def explanation(
    scanned: Scanned, verdict: Verdict | None, table: Sequence[Rule], hosts: Mapping[str, str], *, failed: bool = False
) -> Explanation:
    """Return the first failure; what a job itself is sure of goes before what its logs tell.

    :param failed: it is known that there is one.
    """
    if verdict and (verdict.sure or verdict.code == 0):
        return of_verdict(verdict) if verdict.code else of_nothing(scanned.hits)
    hits = [hit for hit in _living(scanned, table) if not recovery.ended_well(hit)]
    ending = None if verdict else fallback.of_ending(scanned.logs, hosts, failed=failed)
    if not (ending or verdict or _fatal(scanned, hits)):
        return _whole(of_nothing(scanned.hits), scanned)
    known = failed or _failed(scanned, hits, verdict)
    grave = [hit for hit in hits if not first_failure.passing(hit)]
    chosen = _choose(grave, verdict, failed=known) or _choose(hits, verdict, failed=known)
    if chosen is None and verdict is not None:
        told = of_verdict(verdict)
    elif chosen is not None:
        told = _of_hit(chosen, hosts, _consequences(chosen, hits))
    else:
        told = ending or of_nothing(scanned.hits)
    return _whole(told, scanned)


def _whole(told: Explanation, scanned: Scanned) -> Explanation:
    left = scanned.total_bytes - scanned.read_bytes
    return replace(told, unread_bytes=left) if left > 0 else told


def _of_hit(hit: Hit, hosts: Mapping[str, str], consequences: Sequence[str]) -> Explanation:
    if hit.rule is None:
        return fallback.of_exception(hit, hosts, consequences)
    return of_rule(hit, hit.rule, hosts, consequences)


def _choose(hits: Sequence[Hit], verdict: Verdict | None, *, failed: bool) -> Hit | None:
    """The first cause of the story, else of what Ray kept, else what is next in weight; None for the job's own word."""
    story = [hit for hit in hits if hit.log.first]
    found = _first(story, "cause") or _first(hits, "cause")
    if found or (verdict and not verdict.of_training):
        return found
    for level in ("general", *(["warning"] if failed else []), "symptom"):
        found = _first(story, level) or _first(hits, level)
        if found:
            return found
    return None


def _first(hits: Sequence[Hit], level: str) -> Hit | None:
    """In a file what stands first, between files what was said first; a log that tells no time comes last."""
    of_level = [hit for hit in hits if (hit.rule.level if hit.rule else "general") == level]
    firsts: dict[str, Hit] = {}
    for hit in sorted(of_level, key=lambda hit: hit.offset):
        firsts.setdefault(str(hit.log.path), hit)
    return min(firsts.values(), key=lambda hit: (hit.time is None, hit.time or 0.0), default=None)


def _living(scanned: Scanned, table: Sequence[Rule]) -> list[Hit]:
    """What was not survived. Where something was, the log is read again from there: of a rule the first line counts.

    The end of a traceback that some rule knows is left to the rule, which may know it for a consequence.
    """
    kept: list[Hit] = []
    for log in scanned.logs:
        mine = sorted((hit for hit in scanned.hits if hit.log == log), key=lambda hit: hit.offset)
        went_on = [where for where in map(recovery.survived, mine) if where is not None]
        kept += scan.again(log, table, max(went_on)) if went_on else mine
    return [hit for hit in kept if hit.rule or not any(rule.find(hit.line) for rule in table)]


def _fatal(scanned: Scanned, hits: Sequence[Hit]) -> bool:
    """Tell whether a log says that a process ended badly, in words of its end or by a line that is fatal by itself."""
    return any(recovery.ended_badly(log.path) for log in scanned.logs if log.first) or any(
        map(first_failure.fatal, hits)
    )


def _failed(scanned: Scanned, hits: Sequence[Hit], verdict: Verdict | None) -> bool:
    return (
        verdict is not None
        or any(hit.rule is None or hit.rule.level != "warning" for hit in hits)
        or any(recovery.ended_badly(log.path) for log in scanned.logs if log.first)
    )


def _consequences(chosen: Hit, hits: Sequence[Hit]) -> list[str]:
    """The rules of what else was seen, each once."""
    others = {hit.rule.id for hit in hits if hit.rule and hit.rule is not chosen.rule}
    return sorted(others)
