"""Evaluates and prints the checks of all nodes, on the head."""

from __future__ import annotations

from verl_node import checks
from verl_node.checks import cluster, table
from verl_node.checks.background import NodeChecks
from verl_node.checks.cluster import Report
from verl_node.checks.result import Outcome
from verl_node.checks.runner import DEEP_STOP_S, HARD_STOP_S
from verl_node.control.server import ControlServer
from verl_node.errors import CheckFailed
from verl_node.node.node_facts import NodeFacts
from verl_node.reporting.events import Journal
from verl_node.reporting.verdict import Verdict, write_by_rename
from verl_node.supervision.waiting import Deadline, until
from verl_node.training import run


class ClusterCheck:
    """Collects the check reports of all nodes and compares them; a health check run prints them as a table."""

    def __init__(
        self, facts: NodeFacts, journal: Journal, node_checks: NodeChecks, server: ControlServer, plan: run.Plan | None
    ) -> None:
        self._settings = facts.settings
        self._journal = journal
        self._node_checks = node_checks
        self._server = server
        self._plan = plan
        self._count = 0

    async def evaluate(self) -> None:
        """Wait for every node's report, write checks.json and compare. Raises CheckFailed or PermissionMissing."""
        await self._node_checks.done.wait()
        deadline = Deadline(DEEP_STOP_S if self._settings.doctor == "deep" else HARD_STOP_S)
        await until(lambda: all(peer.report for peer in self._server.workers.peers()), deadline=deadline, poll_s=0.05)
        reports = [
            self._node_checks.report,
            *(peer.report or _no_report(peer.identity.host) for peer in self._server.workers.peers()),
        ]
        keys = self._plan.training.keys if self._plan else {}
        model = next(iter(self._plan.training.models), "") if self._plan else ""
        between = cluster.ask(reports, keys, model)
        self._count = sum(len(report.outcomes) for report in reports)
        if self._settings.run_dir is not None:
            write_by_rename(self._settings.run_dir / "checks.json", table.record(reports, between))
        if not self._settings.doctor:
            checks.judge(between, say=self._journal.note)
            return
        print(table.text(reports, between), flush=True)  # noqa: T201
        outcomes = [*(outcome for report in reports for outcome in report.outcomes), *between]
        hosts = table.bad_hosts(outcomes)
        if hosts:
            failed = [outcome for outcome in outcomes if outcome.bad]
            raise CheckFailed(
                f"{len(failed)} checks failed on {', '.join(hosts)}: {failed[0].sentence()}",
                fix=f"{failed[0].fix} Without these nodes: sbatch {table.exclusion(hosts)}",
                host=hosts[0],
                stage="checks",
            )

    def passed(self) -> Verdict:
        """Return the verdict of a health check run without failures."""
        nodes = 1 + len(self._server.workers)
        cause = f"{self._count} checks on {nodes} nodes found nothing that keeps a training from running."
        return Verdict(0, "self", "checks", self._journal.host, cause, "")


def _no_report(host: str) -> Report:
    fix = "Look at that node's node.log and at the file systems that it mounts; exclude it."
    return Report(host, [Outcome("nodes.reported", host, "fail", "It did not report in time.", "a report", fix)])
