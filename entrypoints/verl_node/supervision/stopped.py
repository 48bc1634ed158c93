"""Watches for stopped processes (SIGSTOP), for which Ray and verl wait without an error."""

from __future__ import annotations

import asyncio
from pathlib import Path

from verl_node.errors import ClusterLost
from verl_node.supervision import process_tree

_LOOK_S = 2.0  # a look reads every process of the node: half of what a supervisor takes


async def watch(host: str, stall_s: float) -> None:
    """Wait for a process that stays stopped for ``stall_s`` seconds. Raises ClusterLost.

    Looks are counted and not timed, since this process may have been stopped together with them. One under a debugger
    (state t, not T) is not stopped.
    """
    allowed = stall_s / _LOOK_S
    seen: dict[int, int] = {}
    while True:
        now = process_tree.stopped()
        seen = {pid: seen.get(pid, 0) + 1 for pid in now}
        for pid, looks in seen.items():
            if looks > allowed:
                raise ClusterLost(
                    f"The process {_script(pid) or now[pid]} (PID {pid} as its supervisor sees it) on {host} "
                    f"was stopped {stall_s:.0f} s ago.",
                    fix="Look for who sent it SIGSTOP (kill -STOP, a frozen cgroup); VERLJOB_STALL_S waits longer.",
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
