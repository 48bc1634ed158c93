"""State of processes that a script under test has started."""

from __future__ import annotations

import time
from pathlib import Path


def lives(pid: int) -> bool:
    """Whether a process runs and is no zombie; waits up to a second for one that was just killed."""
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        if state == "Z":
            return False
        time.sleep(0.1)
    return True
