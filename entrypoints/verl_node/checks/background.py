"""Runs the checks of this node while the job starts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import cached_property

from verl_node import checks
from verl_node.checks.check import adjusted, renamed
from verl_node.checks.cluster import Report
from verl_node.checks.node import host as host_checks
from verl_node.checks.node import limits
from verl_node.checks.result import Outcome
from verl_node.checks.runner import Run
from verl_node.errors import NodeError
from verl_node.reporting.events import Journal
from verl_node.settings.settings import Settings
from verl_node.supervision.waiting import Deadline, until

_HEAD_FOUND_S = 2.0


class NodeChecks:
    """They begin before the event loop, are watched in it, and `done` is set when the node has passed."""

    def __init__(self, settings: Settings, gpus: int, journal: Journal) -> None:
        """Start them, before there are threads or an event loop. Raises BadSettings."""
        self._settings = settings
        self._journal = journal
        limits.raise_open_files()
        deep = settings.doctor == "deep"
        words, notes = renamed(settings.checks)
        for note in notes:
            journal.beside("checks", "note", note)
        chosen = [check for check in adjusted(checks.BY_NAME, words) if deep or not check.deep]
        journal.beside("checks", "begin", f"{len(chosen)} checks")
        self._run = Run.begin(chosen, settings, gpus)

    @cached_property
    def done(self) -> asyncio.Event:
        """Made in the event loop, to which it belongs before Python 3.10."""
        return asyncio.Event()

    async def watch(self, can_tell: Callable[[], bool]) -> None:
        """Wait until this node is checked, and file its ``report``.

        Raises CheckFailed or PermissionMissing; where the checks are all that is wanted the head judges them. A node
        that is unfit waits a moment until it ``can_tell`` the head.
        """
        began = time.monotonic()
        host = self._settings.allocation.host
        outcomes = [*host_checks.read(self._settings.out_dir, host), *await self._run.outcomes()]
        self.report = Report(host, outcomes, self._run.facts)
        if not self._settings.doctor:
            await self._judge(outcomes, can_tell)
        self._journal.beside("checks", "end", "", time.monotonic() - began)
        self.done.set()

    async def _judge(self, outcomes: Sequence[Outcome], can_tell: Callable[[], bool]) -> None:
        try:
            checks.judge(outcomes, say=lambda warning: self._journal.beside("checks", "note", warning))
        except NodeError:
            await until(can_tell, deadline=Deadline(_HEAD_FOUND_S))
            raise
