"""Formats the checks of all nodes: a table, JSON, and the list of bad nodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from verl_node.checks.cluster import Report
from verl_node.checks.result import Outcome

_NOT_ASKED = "-"
_WORDS = {"ok": "ok", "idle": _NOT_ASKED, "warn": "warn", "fail": "FAIL", "permission": "FAIL"}
_MOST_COLUMNS = 8


def bad_hosts(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the nodes that failed, each once, in their order."""
    return list(dict.fromkeys(outcome.host for outcome in outcomes if outcome.bad))


def exclusion(hosts: Sequence[str]) -> str:
    """Return the flag of sbatch that leaves these nodes out; empty where there is none."""
    return f"--exclude={','.join(hosts)}" if hosts else ""


def text(reports: Sequence[Report], between: Sequence[Outcome]) -> str:
    """Return the table of nodes and checks, and below it a line for all that was not as wanted.

    Of a large job the nodes on which everything is well share a column.
    """
    outcomes = [*(outcome for report in reports for outcome in report.outcomes), *between]
    cells = {(outcome.check, outcome.host): _WORDS[outcome.severity] for outcome in outcomes}
    names = list(dict.fromkeys(outcome.check for outcome in outcomes))
    columns = _columns([report.host for report in reports], cells)
    width = max(map(len, names), default=0)
    rows = ["  ".join([f"{'':<{width}}", *columns])]
    for name in names:
        marks = [f"{cells.get((name, host), _NOT_ASKED):<{len(title)}}" for title, host in columns.items()]
        rows.append("  ".join([f"{name:<{width}}", *marks]).rstrip())
    wrong = [outcome for outcome in outcomes if outcome.severity not in ("ok", "idle")]
    rows += [f"{outcome.host} {_WORDS[outcome.severity]} {outcome.sentence()} — {outcome.fix}" for outcome in wrong]
    return "\n".join(rows)


def record(reports: Sequence[Report], between: Sequence[Outcome]) -> str:
    """Return the same as JSON: ``nodes`` with facts and outcomes, ``between`` them, ``bad`` hosts, ``exclude``."""
    outcomes = [*(outcome for report in reports for outcome in report.outcomes), *between]
    hosts = bad_hosts(outcomes)
    told = {
        "nodes": [asdict(report) for report in reports],
        "between": [asdict(outcome) for outcome in between],
        "bad": hosts,
        "exclude": exclusion(hosts),
    }
    return json.dumps(told, indent=1) + "\n"


def _columns(hosts: Sequence[str], cells: dict[tuple[str, str], str]) -> dict[str, str]:
    """Return titles and the host that stands for each."""
    if len(hosts) <= _MOST_COLUMNS:
        return {host: host for host in hosts}
    odd = {host for (_, host), mark in cells.items() if mark not in (_WORDS["ok"], _NOT_ASKED)}
    well = [host for host in hosts if host not in odd]
    columns = {host: host for host in hosts if host in odd}
    return {**columns, f"{len(well)} others": well[0]} if well else columns
