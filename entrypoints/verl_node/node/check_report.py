"""Judges and prints the checks of all nodes, on the head."""

from __future__ import annotations

from verl_node import checks
from verl_node.checks import cluster, table
from verl_node.checks.cluster import Report
from verl_node.checks.result import Outcome
from verl_node.checks.runner import DEEP_STOP_S, HARD_STOP_S
from verl_node.control.server import Peers
from verl_node.errors import CheckFailed
from verl_node.node.node import Node
from verl_node.reporting.verdict import Verdict, write_by_rename
from verl_node.supervision.waiting import Deadline, until
from verl_node.training import run

SILENT = "nodes.reported"


class ClusterCheck:
    """The reports of all nodes, judged together; where the checks are all that is wanted they become a table."""

    def __init__(self, node: Node, peers: Peers, plan: run.Plan | None) -> None:
        self._node = node
        self._peers = peers
        self._plan = plan
        self._asked = 0

    async def judge(self) -> None:
        """Wait for every node's report, write checks.json, and judge. Raises CheckFailed or PermissionMissing."""
        await self._node.checking.done.wait()
        deadline = Deadline(DEEP_STOP_S if self._node.settings.doctor == "deep" else HARD_STOP_S)
        await until(lambda: all(peer.report for peer in self._peers.workers.peers()), deadline=deadline, poll_s=0.05)
        reports = [
            self._node.checking.report,
            *(peer.report or _silent(peer.identity.host) for peer in self._peers.workers.peers()),
        ]
        keys = self._plan.training.keys if self._plan else {}
        model = next(iter(self._plan.training.models), "") if self._plan else ""
        between = cluster.compare(reports, keys, model)
        self._asked = sum(len(report.outcomes) for report in reports)
        self._keep(table.record(reports, between))
        if not self._node.settings.doctor:
            checks.require_passed(between, log=self._node.journal.note)
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
        """Return the verdict of a doctor's visit that found nothing."""
        count = 1 + len(self._peers.workers)
        words = f"{self._asked} checks on {count} nodes found nothing that keeps a training from running."
        return Verdict(0, "self", "checks", self._node.host, words, "")

    def _keep(self, record: str) -> None:
        if self._node.settings.run_dir is not None:
            write_by_rename(self._node.settings.run_dir / "checks.json", record)


def _silent(host: str) -> Report:
    fix = "Look at that node's node.log and at the file systems that it mounts; exclude it."
    return Report(host, [Outcome(SILENT, host, "fail", "It did not tell of its checks in time.", "an answer", fix)])
