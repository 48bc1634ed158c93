"""Delays Ray's dashboard, agents and log monitor until the cluster has formed.

Each imports for seconds of a core, in which a node with few cores could join. Their ports are known before they listen
(hook.py), so nobody misses them. They wait for a lock of the supervisor's, which the kernel gives back should the
supervisor die; and never longer than LONGEST_S, since a raylet and its workers ask 30 times, a second apart, for the
agent that takes their metrics, and then do without (kMetricAgentInitMaxRetries of metrics_agent_client.h, Ray 2.60).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import tempfile
from pathlib import Path

LONGEST_S = 10.0
VARIABLE = "VERLJOB_STANDBY"  # the lock's path, for hook.py
_PROGRAM = str(Path(__file__).with_name("deferred_exec.py"))


class Standby:
    """The lock: taken when it is made, and given back by `release` or after LONGEST_S."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix="standby-", dir=folder)
        self.path = Path(name)
        self._lock = os.fdopen(descriptor, "wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        asyncio.get_running_loop().call_later(LONGEST_S, self.release)

    def release(self) -> None:
        """Let them start; what comes later finds no lock."""
        if not self._lock.closed:
            self.path.unlink()
            self._lock.close()


def words(niceness: int, lock: str) -> list[str]:
    """Return what goes before a command that is to stand by for ``lock``, and to stand back by ``niceness`` then."""
    return [sys.executable, "-IS", _PROGRAM, str(niceness), lock]
