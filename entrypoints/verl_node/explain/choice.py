"""Chooses the first failure among the lines that matched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from verl_node.explain import fallback, first_failure
from verl_node.explain.logs import recovery, scan
from verl_node.explain.logs.scan import Hit, Scanned
from verl_node.explain.outcome import Verdict
from verl_node.explain.report import Explanation, from_rule, from_verdict, no_failure
from verl_node.explain.rules import Rule


def choose(
    scanned: Scanned, verdict: Verdict | None, table: Sequence[Rule], hosts: Mapping[str, str], *, failed: bool = False
) -> Explanation:
    """Return the explanation of the first failure; a certain verdict of the job wins over its logs.

    :param failed: the job is known to have failed.
    """
    if verdict and (verdict.sure or verdict.code == 0):
        return from_verdict(verdict) if verdict.code else _no_failure(scanned)
    hits = [hit for hit in _not_survived(scanned, table) if not recovery.ended_well(hit)]
    ending = None if verdict else fallback.explain_ending(scanned.logs, hosts, failed=failed)
    if not (ending or verdict or _ended_badly(scanned) or any(map(first_failure.is_fatal, hits))):
        explanation = _no_failure(scanned)
    elif chosen := _first_failure(hits, verdict, failed=failed or _has_failed(scanned, hits, verdict)):
        others = sorted({hit.rule.id for hit in hits if hit.rule and hit.rule is not chosen.rule})
        if chosen.rule is None:
            explanation = fallback.explain_exception(chosen, hosts, others)
        else:
            explanation = from_rule(chosen, chosen.rule, hosts, others)
    elif verdict is not None:
        explanation = from_verdict(verdict)
    else:
        explanation = ending or _no_failure(scanned)
    unread = scanned.total_bytes - scanned.read_bytes
    return replace(explanation, unread_bytes=unread) if unread > 0 else explanation


def _no_failure(scanned: Scanned) -> Explanation:
    return no_failure([hit for hit in scanned.hits if not recovery.follows_training(hit)])


def _first_failure(hits: Sequence[Hit], verdict: Verdict | None, *, failed: bool) -> Hit | None:
    """Return the first failure, preferably a final one; None for the verdict."""
    final = [hit for hit in hits if not first_failure.is_passing(hit)]
    return _first_cause(final, verdict, failed=failed) or _first_cause(hits, verdict, failed=failed)


def _first_cause(hits: Sequence[Hit], verdict: Verdict | None, *, failed: bool) -> Hit | None:
    """Return the first cause, else the first hit of a lower level; None for the verdict."""
    main = [hit for hit in hits if hit.log.main]
    found = _first(main, "cause") or _first(hits, "cause")
    if found or (verdict and not verdict.of_training):
        return found
    general, warning, symptom = (
        _first(main, level) or _first(hits, level) for level in ("general", "warning", "symptom")
    )
    if general or not failed or (symptom and warning and _is_earlier(symptom, warning)):
        return general or symptom
    return warning or symptom


def _is_earlier(hit: Hit, other: Hit) -> bool:
    """Return whether a hit is known to be earlier than the other."""
    if hit.log == other.log:
        return hit.offset < other.offset
    return hit.time is not None and other.time is not None and hit.time < other.time


def _first(hits: Sequence[Hit], level: str) -> Hit | None:
    """Return the first hit, by position in a file and by time between files."""
    of_level = [hit for hit in hits if (hit.rule.level if hit.rule else "general") == level]
    firsts: dict[str, Hit] = {}
    for hit in sorted(of_level, key=lambda hit: hit.offset):
        firsts.setdefault(str(hit.log.path), hit)
    return min(firsts.values(), key=lambda hit: (hit.time is None, hit.time or 0.0), default=None)


def _not_survived(scanned: Scanned, table: Sequence[Rule]) -> list[Hit]:
    """Return the hits that the job did not survive; after a survived one the log is scanned again.

    An exception that a rule matches is left to the rule, which may classify it as a consequence.
    """
    kept: list[Hit] = []
    for log in scanned.logs:
        of_log = sorted((hit for hit in scanned.hits if hit.log == log), key=lambda hit: hit.offset)
        continued = [offset for offset in map(recovery.survived, of_log) if offset is not None]
        kept += scan.rescan(log, table, max(continued)) if continued else of_log
    return [hit for hit in kept if hit.rule or not any(rule.find(hit.line) for rule in table)]


def _has_failed(scanned: Scanned, hits: Sequence[Hit], verdict: Verdict | None) -> bool:
    failures = (hit.rule is None or hit.rule.level != "warning" for hit in hits)
    return verdict is not None or any(failures) or _ended_badly(scanned)


def _ended_badly(scanned: Scanned) -> bool:
    return any(recovery.ended_badly(log.path) for log in scanned.logs if log.main)
