"""Shutdown: writes the verdict, tells the other nodes, ends all child processes."""

from __future__ import annotations

import asyncio

from verl_node.errors import ClusterLost
from verl_node.node import explain_child
from verl_node.node.node import Node
from verl_node.reporting.verdict import Verdict, save_result, save_verdict
from verl_node.supervision import process_tree

# node.sh gives a node 3.5 s after TERM; an orderly end may take its time over Ray's last writes.
_HURRIED_S, _ORDERLY_S = 1.5, 4.0
_FAREWELL_S = 1.5


async def conclude(node: Node, verdict: Verdict) -> None:
    """Leave the verdict, tell the others, and end everything that descends from this process; never raises."""
    folders = [folder for folder in (node.settings.out_dir, node.folder()) if folder is not None]
    for problem in save_verdict(verdict, folders):
        node.journal.note(problem)
    _save_result(node, verdict)
    if node.farewell is not None:
        try:
            await asyncio.wait_for(node.farewell(verdict), _FAREWELL_S)
        except asyncio.TimeoutError:
            node.journal.note("not every node heard how the job ended")
    hurried = verdict.origin == "signal" or verdict.code == ClusterLost.code
    left = await process_tree.end_all(_HURRIED_S if hurried else _ORDERLY_S)
    if left:
        node.journal.note(f"still there after KILL: {', '.join(left)}")


async def explain(node: Node, verdict: Verdict) -> None:
    """Leave what the logs tell of a failure, where they may know more than the verdict (on the head)."""
    run_dir = node.settings.run_dir
    if run_dir is None or node.settings.joins or not explain_child.wanted(verdict):
        return
    problem = await explain_child.leave(run_dir, node.settings.ray_temp_dir)
    if problem:
        node.journal.note(problem)


def _save_result(node: Node, verdict: Verdict) -> None:
    allocation, run_dir = node.settings.allocation, node.settings.run_dir
    if run_dir is None or node.settings.joins:
        return
    try:
        save_result(
            verdict,
            run_dir,
            attempt=node.settings.attempt,
            phases=node.journal.seconds,
            nodes=allocation.hosts or [node.host],
        )
    except OSError as error:
        node.journal.note(f"result.json could not be written: {error}")
