"""Waits for files that a script under test writes."""

from __future__ import annotations

import time
from pathlib import Path


def wait_for(path: Path) -> None:
    """Wait until a file has content."""
    deadline = time.monotonic() + 10
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} is missing or empty"
        time.sleep(0.05)
