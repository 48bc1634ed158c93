"""Waiting for what a script under test does."""

from __future__ import annotations

import time
from pathlib import Path


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 10
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.05)
