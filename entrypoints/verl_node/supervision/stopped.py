"""Watches for stopped processes (SIGSTOP): Ray and verl wait for them without an error."""

from __future__ import annotations

import asyncio
from pathlib import Path

from verl_node.errors import ClusterLost
from verl_node.supervision import process_tree

_POLL_S = 2.0  # reading all processes of the node is half of the supervisor's CPU time


async def watch(host: str, stall_s: float) -> None:
    """Wait until a process has been stopped for ``stall_s`` seconds. Raises ClusterLost.

    Polls are counted and not timed, since this process may have been stopped, too. A process under a debugger (state t,
    not T) is not stopped.
    """
    allowed = stall_s / _POLL_S
    counts: dict[int, int] = {}
    while True:
        stopped = process_tree.stopped()
        counts = {pid: counts.get(pid, 0) + 1 for pid in stopped}
        for pid, count in counts.items():
            if count > allowed:
                raise ClusterLost(
                    f"The process {_script(pid) or stopped[pid]} (PID {pid} as its supervisor sees it) on {host} "
                    f"was stopped {stall_s:.0f} s ago.",
                    fix="Look for the sender of SIGSTOP (kill -STOP, a frozen cgroup); VERLJOB_STALL_S waits longer.",
                    host=host,
                )
        await asyncio.sleep(_POLL_S)


def _script(pid: int) -> str:
    """Return the name of the script that a shell runs, such as node.sh; empty for other processes."""
    try:
        shell, script, *_ = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except (OSError, ValueError):
        return ""
    return Path(script).name if shell.endswith("sh") and script.endswith(".sh") else ""
