"""Formats the checks of all nodes: a table, JSON, and the list of bad nodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from verl_node.checks.cluster import Report
from verl_node.checks.result import Outcome

_NOT_CHECKED = "-"
_MARKS = {"ok": "ok", "idle": _NOT_CHECKED, "warn": "warn", "fail": "FAIL", "permission": "FAIL"}
_MAX_COLUMNS = 8


def bad_hosts(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the nodes that failed, without duplicates and in order."""
    return list(dict.fromkeys(outcome.host for outcome in outcomes if outcome.bad))


def exclusion(hosts: Sequence[str]) -> str:
    """Return sbatch's flag that excludes these nodes; empty for no nodes."""
    return f"--exclude={','.join(hosts)}" if hosts else ""


def text(reports: Sequence[Report], between: Sequence[Outcome]) -> str:
    """Return the table of checks by nodes, then a line for each warning and failure.

    In a large job the nodes without any share a column.
    """
    outcomes = [*(outcome for report in reports for outcome in report.outcomes), *between]
    cells = {(outcome.check, outcome.host): _MARKS[outcome.severity] for outcome in outcomes}
    names = list(dict.fromkeys(outcome.check for outcome in outcomes))
    columns = _columns([report.host for report in reports], cells)
    width = max(map(len, names), default=0)
    rows = ["  ".join([f"{'':<{width}}", *columns])]
    for name in names:
        marks = [f"{cells.get((name, host), _NOT_CHECKED):<{len(title)}}" for title, host in columns.items()]
        rows.append("  ".join([f"{name:<{width}}", *marks]).rstrip())
    wrong = [outcome for outcome in outcomes if outcome.severity not in ("ok", "idle")]
    rows += [f"{outcome.host} {_MARKS[outcome.severity]} {outcome.sentence()} — {outcome.fix}" for outcome in wrong]
    return "\n".join(rows)


def record(reports: Sequence[Report], between: Sequence[Outcome]) -> str:
    """Return the same as JSON: ``nodes`` with facts and outcomes, ``between`` them, ``bad`` hosts, ``exclude``."""
    outcomes = [*(outcome for report in reports for outcome in report.outcomes), *between]
    hosts = bad_hosts(outcomes)
    content = {
        "nodes": [asdict(report) for report in reports],
        "between": [asdict(outcome) for outcome in between],
        "bad": hosts,
        "exclude": exclusion(hosts),
    }
    return json.dumps(content, indent=1) + "\n"


def _columns(hosts: Sequence[str], cells: dict[tuple[str, str], str]) -> dict[str, str]:
    """Return the column titles, each with the host whose marks it shows."""
    if len(hosts) <= _MAX_COLUMNS:
        return {host: host for host in hosts}
    complaining = {host for (_, host), mark in cells.items() if mark not in (_MARKS["ok"], _NOT_CHECKED)}
    healthy = [host for host in hosts if host not in complaining]
    columns = {host: host for host in hosts if host in complaining}
    return {**columns, f"{len(healthy)} others": healthy[0]} if healthy else columns
