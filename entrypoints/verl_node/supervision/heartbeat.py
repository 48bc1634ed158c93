"""Heartbeat thread: signals liveness every second even while the event loop is blocked.

A file system that stops answering may hold up the event loop for minutes, and such a node is not lost. A process that
was stopped, or whose container or machine was frozen, gives no sign, and nothing else tells it from a quiet one.
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


def also(beat: Callable[[], None]) -> None:
    """Call ``beat``, which must not wait nor raise, every second from now on."""
    with _lock:
        _beats.add(beat)


def no_longer(beat: Callable[[], None]) -> None:
    """Stop calling it."""
    with _lock:
        _beats.discard(beat)


def start(pulse: Path) -> None:
    """Beat until the process ends; also into the FIFO ``pulse``, which node.sh listens to, where there is one."""
    threading.Thread(target=_live, args=(pulse,), name="heart", daemon=True).start()


def _live(pulse: Path) -> None:
    descriptor = _open(pulse)
    while True:
        if descriptor is not None:
            with suppress(OSError):  # nobody reads any more: the lease tells
                os.write(descriptor, b".")
        with _lock:
            beats = list(_beats)
        for beat in beats:
            beat()
        time.sleep(BEAT_S)


def _open(pulse: Path) -> int | None:
    try:
        return os.open(pulse, os.O_WRONLY | os.O_NONBLOCK) if stat.S_ISFIFO(os.stat(pulse).st_mode) else None
    except OSError:  # by hand there is none
        return None
