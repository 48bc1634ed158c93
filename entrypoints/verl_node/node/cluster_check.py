"""Compares and prints the checks of all nodes, on the head."""

from __future__ import annotations

from verl_node import checks
from verl_node.checks import cluster, table
from verl_node.checks.background import NodeChecks
from verl_node.checks.cluster import Report
from verl_node.checks.result import Outcome
from verl_node.checks.runner import DEEP_STOP_S, HARD_STOP_S
from verl_node.control.server import ControlServer
from verl_node.errors import CheckFailed
from verl_node.reporting.events import Journal
from verl_node.reporting.verdict import Verdict, write_by_rename
from verl_node.settings.settings import Settings
from verl_node.supervision.waiting import Deadline, until
from verl_node.training import run


async def evaluate(
    settings: Settings, journal: Journal, node_checks: NodeChecks, server: ControlServer, plan: run.Plan | None
) -> Verdict:
    """Wait for every node's report, write checks.json and compare the nodes; a health check run prints a table.

    Return the verdict of a health check run without failures. Raises CheckFailed or PermissionMissing.
    """
    await node_checks.done.wait()
    deadline = Deadline(DEEP_STOP_S if settings.doctor == "deep" else HARD_STOP_S)
    await until(lambda: all(peer.report for peer in server.workers.peers()), deadline=deadline, poll_s=0.05)
    reports = [node_checks.report]
    reports += [peer.report or _no_report(peer.identity.host) for peer in server.workers.peers()]
    keys = plan.training.keys if plan else {}
    model = next(iter(plan.training.models), "") if plan else ""
    between = cluster.compare(reports, keys, model)
    if settings.run_dir is not None:
        write_by_rename(settings.run_dir / "checks.json", table.record(reports, between))
    of_nodes = [outcome for report in reports for outcome in report.outcomes]
    if settings.doctor:
        print(table.text(reports, between), flush=True)  # noqa: T201
        _require_passed([*of_nodes, *between])
    else:
        checks.require_passed(between, log=journal.note)
    cause = f"{len(of_nodes)} checks on {len(reports)} nodes found nothing that keeps a training from running."
    return Verdict(0, "self", "checks", journal.host, cause, "")


def _require_passed(outcomes: list[Outcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome.bad]
    if hosts := table.bad_hosts(outcomes):
        raise CheckFailed(
            f"{len(failed)} checks failed on {', '.join(hosts)}: {failed[0].sentence()}",
            fix=f"{failed[0].fix} Without these nodes: sbatch {table.exclusion(hosts)}",
            host=hosts[0],
            stage="checks",
        )


def _no_report(host: str) -> Report:
    fix = "Look at that node's node.log and at the file systems that it mounts; exclude it."
    return Report(host, [Outcome("nodes.reported", host, "fail", "It did not report in time.", "a report", fix)])
