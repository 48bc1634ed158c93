"""Waits with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.25


def wait_until(done: Callable[[], bool], timeout_s: float) -> bool:
    """Ask ``done`` until it says yes; False when ``timeout_s`` have passed without."""
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
