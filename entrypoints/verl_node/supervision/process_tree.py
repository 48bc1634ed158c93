"""Process tree of this supervisor: adopts orphans, lists and ends descendants only."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from contextlib import suppress
from dataclasses import dataclass

from verl_node.supervision.waiting import Deadline, until

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
    state: str  # proc(5): R, S, D, Z, T (stopped), t (traced) …

    @property
    def stopped(self) -> bool:
        return self.state == "T"

    @property
    def zombie(self) -> bool:
        return self.state == "Z"


def descendants() -> dict[int, str]:
    """Return pid and command name of every living process that descends from this one."""
    return {pid: entry.name for pid, entry in _family(_entries()).items() if not entry.zombie}


def below(pid: int) -> list[int]:
    """Return the living processes that descend from another one, those that it started first before theirs."""
    return [child for child, entry in _family(_entries(), pid).items() if not entry.zombie]


def uncollected(pid: int) -> set[str]:
    """Return the names of the processes below another one that have ended, and that it has not taken notice of."""
    return {entry.name for entry in _family(_entries(), pid).values() if entry.zombie}


def stopped() -> dict[int, str]:
    """Return those that were stopped (SIGSTOP) and not continued, among our descendants and our parent."""
    entries = _entries()
    candidates = {**_family(entries), os.getppid(): entries.get(os.getppid())}
    return {pid: entry.name for pid, entry in candidates.items() if entry is not None and entry.stopped}


def lives(pid: int, name: str) -> bool:
    """Tell whether this process is there, under this command name, and not merely uncollected."""
    entry = _entry(str(pid))
    return entry is not None and entry.name == name and not entry.zombie


def reap_orphans(started: set[int], seen: int) -> int:
    """Collect an ended process that we adopted if it was ``seen`` at the last look; return one seen now, 0 for none.

    Those that we ``started`` are left to asyncio, which waits for them. It tells their number some time after the fork,
    and a short one may have ended by then: so nothing is collected before a second look.
    """
    with suppress(ChildProcessError):  # no children at all
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in started:
            if ended.si_pid != seen:
                return ended.si_pid
            os.waitpid(ended.si_pid, os.WNOHANG)
    return 0


def _family(entries: dict[int, _Entry], root: int = 0) -> dict[int, _Entry]:
    children: dict[int, list[int]] = {}
    for pid, entry in entries.items():
        children.setdefault(entry.parent, []).append(pid)
    found: dict[int, _Entry] = {}
    waiting = list(children.get(root or os.getpid(), []))
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        found[pid] = entries[pid]
    return found


def _entries() -> dict[int, _Entry]:
    found = {int(pid): _entry(pid) for pid in os.listdir("/proc") if pid.isdigit()}
    return {pid: entry for pid, entry in found.items() if entry is not None}


def _entry(pid: str) -> _Entry | None:
    """Read one process: by system calls alone, since this is done for all of them every other second."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:  # ended meanwhile
        return None
    try:
        name, _, rest = os.read(descriptor, 1024).partition(b"(")[2].rpartition(b")")  # a name may hold brackets
    except OSError:
        return None
    finally:
        os.close(descriptor)
    state, parent = rest.split(None, 2)[:2]
    return _Entry(name.decode("utf-8", "replace"), int(parent), state.decode())


async def end_all(grace_s: float) -> list[str]:
    """End every descendant: TERM, after ``grace_s`` KILL; return the names of those that even KILL did not end."""
    if os.getppid() in stopped():
        os.kill(os.getppid(), signal.SIGCONT)  # a stopped init would not take notice of our own end
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
