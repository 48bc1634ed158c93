"""Processes of this node that somebody stopped: Ray and verl wait for them, and nothing fails."""

from __future__ import annotations

import asyncio

from verl_node import tree
from verl_node.errors import ClusterLost

_LOOK_S = 2.0  # a look reads every process of the node: half of what a supervisor takes
_LOOKS = 2  # counted and not timed: we may have been stopped together with them


async def watch(host: str) -> None:
    """Wait for a process that stays stopped for 4 s. Raises ClusterLost; one under a debugger is not stopped."""
    seen: dict[int, int] = {}
    while True:
        now = tree.stopped()
        seen = {pid: seen.get(pid, 0) + 1 for pid in now}
        for pid, looks in seen.items():
            if looks > _LOOKS:
                ago_s = _LOOKS * _LOOK_S
                raise ClusterLost(
                    f"The process {now[pid]} ({pid} in its container) on {host} was stopped {ago_s:.0f} s ago.",
                    fix="Look for who sent it SIGSTOP (kill -STOP, a frozen cgroup).",
                    host=host,
                )
        await asyncio.sleep(_LOOK_S)
