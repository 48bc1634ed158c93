"""Heartbeat thread: signals liveness every second even while the event loop is blocked.

A file system that does not answer may block the event loop for minutes, and such a node is not lost. A process that is
stopped, or whose container or machine is frozen, sends no heartbeat; nothing else shows that it is not just quiet.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

BEAT_S = 1.0

_beats: set[Callable[[], None]] = set()
_lock = threading.Lock()


def add_beat(beat: Callable[[], None]) -> None:
    """Call ``beat``, which must not block nor raise, every second."""
    with _lock:
        _beats.add(beat)


def remove_beat(beat: Callable[[], None]) -> None:
    """Stop calling ``beat``."""
    with _lock:
        _beats.discard(beat)


def start(pulse: Path) -> None:
    """Start the thread; it also writes to the FIFO ``pulse``, which node.sh reads, if it exists."""
    threading.Thread(target=_run, args=(pulse,), name="heartbeat", daemon=True).start()


def _run(pulse: Path) -> None:
    descriptor = _open(pulse)
    while True:
        if descriptor is not None:
            with suppress(OSError):  # without a reader the lease ends the node
                os.write(descriptor, b".")
        with _lock:
            beats = list(_beats)
        for beat in beats:
            beat()
        time.sleep(BEAT_S)


def _open(pulse: Path) -> int | None:
    try:
        return os.open(pulse, os.O_WRONLY | os.O_NONBLOCK) if stat.S_ISFIFO(os.stat(pulse).st_mode) else None
    except OSError:  # without Slurm it does not exist
        return None
