"""Processes of this node that somebody stopped: Ray and verl wait for them, and nothing fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

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
                    f"The process {_script(pid) or now[pid]} (PID {pid} as its supervisor sees it) on {host} "
                    f"was stopped {ago_s:.0f} s ago.",
                    fix="Look for who sent it SIGSTOP (kill -STOP, a frozen cgroup).",
                    host=host,
                )
        await asyncio.sleep(_LOOK_S)


def _script(pid: int) -> str:
    """The name of the script that a shell runs, such as node.sh; empty for anything else, or one that is gone."""
    try:
        shell, script, *_ = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except (OSError, ValueError):
        return ""
    return Path(script).name if shell.endswith("sh") and script.endswith(".sh") else ""
