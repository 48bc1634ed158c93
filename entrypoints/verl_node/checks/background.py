"""Runs the checks of this node while the job starts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from verl_node import checks
from verl_node.checks.check import adjusted, replace_old_names
from verl_node.checks.cluster import Report
from verl_node.checks.node import limits
from verl_node.checks.result import Outcome
from verl_node.checks.runner import Run
from verl_node.errors import NodeError
from verl_node.reporting.events import Journal
from verl_node.settings.settings import Settings
from verl_node.supervision.waiting import Deadline, until

HOST_FILE = "host-checks"
_HOST_FIELDS = 5
_HEAD_FOUND_S = 2.0


class NodeChecks:
    """Checks that start before the event loop; `done` is set when the node has passed."""

    def __init__(self, settings: Settings, gpus: int, journal: Journal) -> None:
        """Start them, before any thread or event loop exists. Raises BadSettings."""
        self._settings = settings
        self._journal = journal
        limits.raise_open_files()
        deep = settings.doctor == "deep"
        adjustments, notes = replace_old_names(settings.checks)
        for note in notes:
            journal.beside("checks", "note", note)
        chosen = [check for check in adjusted(checks.BY_NAME, adjustments) if deep or not check.deep]
        journal.beside("checks", "begin", f"{len(chosen)} checks")
        self._run = Run.begin(chosen, settings, gpus)

    @cached_property
    def done(self) -> asyncio.Event:
        """Created in the event loop, to which it is bound before Python 3.10."""
        return asyncio.Event()

    async def watch(self, can_report: Callable[[], bool]) -> None:
        """Wait for the checks and set ``report``.

        Raises CheckFailed or PermissionMissing, unless this is a health check run, which the head evaluates. A node
        that failed waits a moment until ``can_report``, so that its report reaches the head.
        """
        began = time.monotonic()
        host = self._settings.allocation.host
        outcomes = [*host_outcomes(self._settings.out_dir, host), *await self._run.outcomes()]
        self.report = Report(host, outcomes, self._run.facts)
        if not self._settings.doctor:
            await self._require_passed(outcomes, can_report)
        self._journal.beside("checks", "end", "", time.monotonic() - began)
        self.done.set()

    async def _require_passed(self, outcomes: Sequence[Outcome], can_report: Callable[[], bool]) -> None:
        try:
            checks.require_passed(outcomes, log=lambda warning: self._journal.beside("checks", "note", warning))
        except NodeError:
            await until(can_report, deadline=Deadline(_HEAD_FOUND_S))
            raise


def host_outcomes(folder: Path, host: str) -> list[Outcome]:
    """Read the results of the checks that node.sh ran on the host (slurm/lib/node/host_check.sh).

    A line has name, severity, seen, expected and fix, separated by tabs.
    """
    file = folder / HOST_FILE
    if not file.exists():
        return []
    lines = [line.split("\t") for line in file.read_text(encoding="utf-8", errors="replace").split("\n")]
    return [
        Outcome(name, host, severity, seen, expected, fix)
        for name, severity, seen, expected, fix in (line for line in lines if len(line) == _HOST_FIELDS)
    ]
