"""Shutdown: writes the verdict, notifies the other nodes, ends all child processes, explains a failure."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from verl_node.errors import ClusterLost
from verl_node.node.node_facts import NodeFacts
from verl_node.reporting.events import Journal
from verl_node.reporting.masking import masked
from verl_node.reporting.verdict import Verdict, save_phases, save_verdict, write_by_rename
from verl_node.supervision import process_tree
from verl_node.supervision.child import Process
from verl_node.supervision.waiting import Deadline, within

# node.sh gives a node 3.5 s after TERM; at an orderly end Ray may take longer over its last writes.
_HURRIED_S, _ORDERLY_S = 1.5, 4.0
_NOTIFY_S = 1.5
_EXPLAIN_S, _READ_LOGS_S = 2.0, 1.2
# Exit codes of Ray's start and the forming of the cluster, of which the logs may know more than the verdict.
_FORMING_CODES = (71, 75)


class Shutdown:
    """The end of this node. ``notify_peers`` is set once other nodes are connected."""

    def __init__(self, facts: NodeFacts, journal: Journal) -> None:
        self._facts = facts
        self._journal = journal
        self.notify_peers: Callable[[Verdict], Awaitable[None]] | None = None

    def can_notify(self) -> bool:
        """Return whether other nodes are connected."""
        return self.notify_peers is not None

    async def end(self, verdict: Verdict) -> None:
        """Write phases and verdict, notify the other nodes, and end all descendants of this process. Never raises."""
        settings = self._facts.settings
        problems = save_verdict(verdict, filter(None, [settings.out_dir, self._facts.folder]))
        if settings.run_dir is not None and not settings.joins:
            problems += save_phases(self._journal.seconds, settings.run_dir)
        for problem in problems:
            self._journal.note(problem)
        if self.notify_peers is not None:
            try:
                await asyncio.wait_for(self.notify_peers(verdict), _NOTIFY_S)
            except asyncio.TimeoutError:
                self._journal.note("not every node acknowledged how the job ended")
        hurried = verdict.origin == "signal" or verdict.code == ClusterLost.code
        survivors = await process_tree.end_all(_HURRIED_S if hurried else _ORDERLY_S)
        if survivors:
            self._journal.note(f"still running after KILL: {', '.join(survivors)}")

    async def explain(self, verdict: Verdict) -> None:
        """Write the first failure in the logs to ``explanation`` in the run directory, for launch.sh (on the head)."""
        settings = self._facts.settings
        if settings.run_dir is None or settings.joins or not _logs_may_know_more(verdict):
            return
        problem = await _explain(settings.run_dir, settings.ray_temp_dir / "session_latest" / "logs")
        if problem:
            self._journal.note(problem)


def _logs_may_know_more(verdict: Verdict) -> bool:
    """Return whether training ended by itself, or Ray or the cluster did not start."""
    training = verdict.stage == "train" and verdict.origin == "self" and verdict.code != 0
    return training or verdict.code in _FORMING_CODES


async def _explain(run_dir: Path, ray_logs: Path) -> str:
    """Read the logs in a child process, since a file system may hang; return the problem, empty for none."""
    argv = [sys.executable, "-m", "verl_node.explain", str(run_dir)]
    argv += ["--processes", "1", "--limit-s", str(_READ_LOGS_S)]
    argv += ["--beside", str(ray_logs)] if ray_logs.is_dir() else []
    env = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": os.defpath}
    lines: list[str] = []
    process = await Process.start(argv, env, on_line=lines.append)
    try:
        code = await within(Deadline(_EXPLAIN_S), process.ended())
    except asyncio.TimeoutError:
        process.kill()
        return f"the logs were not read in {_EXPLAIN_S:.0f} s"
    if code:
        return f"the logs could not be explained: {masked(' | '.join(lines))[-200:]}"
    try:
        write_by_rename(run_dir / "explanation", "".join(f"{line}\n" for line in lines))
    except OSError as error:
        return f"the explanation could not be written: {error.strerror}"
    return ""
