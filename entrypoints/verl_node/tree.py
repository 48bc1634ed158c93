"""The process tree below this one: kept together, looked at, and ended without touching anybody else's."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from verl_node.wait import Deadline, until

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own, so that none can slip away from us.

    Ray's processes change their names and environment, so ancestry is the only mark that stays. Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


@dataclass(frozen=True)
class _Entry:
    name: str
    parent: int
    zombie: bool


def descendants() -> dict[int, str]:
    """Return pid and command name of every living process that descends from this one."""
    entries = _entries()
    children: dict[int, list[int]] = {}
    for pid, entry in entries.items():
        children.setdefault(entry.parent, []).append(pid)
    found: dict[int, str] = {}
    waiting = list(children.get(os.getpid(), []))
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        if not entries[pid].zombie:
            found[pid] = entries[pid].name
    return found


def reap_orphans(started: set[int]) -> None:
    """Collect ended processes that we adopted; those that we ``started`` are left to asyncio, which waits for them."""
    for pid, entry in _entries().items():
        if entry.zombie and entry.parent == os.getpid() and pid not in started:
            with suppress(ChildProcessError):  # collected meanwhile
                os.waitpid(pid, os.WNOHANG)


def _entries() -> dict[int, _Entry]:
    entries = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # ended meanwhile
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")  # a name may hold spaces and brackets
        state, parent = rest.split()[:2]
        entries[int(stat.parent.name)] = _Entry(name, int(parent), state == "Z")
    return entries


async def end_all(grace_s: float) -> list[str]:
    """End every descendant: TERM, after ``grace_s`` KILL; return the names of those that even KILL did not end."""
    _signal_all(signal.SIGTERM)
    if not await until(lambda: not descendants(), deadline=Deadline(grace_s), poll_s=0.1):
        kill = Deadline(1.0)
        while descendants() and kill.left_s() > 0:
            _signal_all(signal.SIGKILL)  # again: a process may have forked between the look and the signal
            await asyncio.sleep(0.05)
    return sorted(descendants().values())


def _signal_all(number: signal.Signals) -> None:
    for pid in descendants():
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
