"""Process tree of this supervisor: adopts orphans, lists, watches and ends descendants only."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from verl_node.errors import ClusterLost
from verl_node.supervision.waiting import Deadline, until

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_POLL_S = 2.0  # reading all processes of the node is half of the supervisor's CPU time
_ENGINE_GRACE_S = 30.0  # for the training to end itself when its engine has ended
# Beginnings of the names of verl's vLLM server, an actor that lives as long as the training, and of its child, the
# engine: the titles that Ray and vLLM (vllm/v1/engine/core.py) set, of which a name has 15 bytes.
_SERVER, _ENGINE = "ray::vLLMHttp", "VLLM::EngineCor"


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends, so that none can escape. Raises OSError.

    Ray's processes change their names and environment, so only their ancestry identifies them.
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
    """Return PID and command name of every living descendant of this process."""
    return {pid: entry.name for pid, entry in _family(_entries()).items() if not entry.zombie}


def below(pid: int) -> list[int]:
    """Return the living descendants of another process, parents before their children."""
    return [child for child, entry in _family(_entries(), pid).items() if not entry.zombie]


def living(pids: Iterable[int]) -> set[int]:
    """Return the processes that have not ended."""
    entries = _entries()
    return {pid for pid in pids if pid in entries and not entries[pid].zombie}


def uncollected(pid: int) -> set[str]:
    """Return the names of another process's descendants that ended and were not waited for (zombies)."""
    return {entry.name for entry in _family(_entries(), pid).values() if entry.zombie}


def stopped() -> dict[int, str]:
    """Return PID and name of stopped processes (SIGSTOP) among our descendants and our parent."""
    entries = _entries()
    return _stopped(_family(entries), entries)


def _stopped(family: dict[int, _Entry], entries: dict[int, _Entry]) -> dict[int, str]:
    candidates = {**family, os.getppid(): entries.get(os.getppid())}
    return {pid: entry.name for pid, entry in candidates.items() if entry is not None and entry.stopped}


async def watch(host: str, stall_s: float) -> None:
    """Wait until a process has been stopped for ``stall_s`` seconds, or vLLM has no engine. Raises ClusterLost.

    Polls are counted and not timed, since this process may have been stopped, too. A process under a debugger (state t,
    not T) is not stopped.
    """
    allowed = stall_s / _POLL_S
    counts: dict[int, int] = {}
    engines = _Engines(host)
    while True:
        entries = _entries()
        family = _family(entries)
        engines.look(family)
        names = _stopped(family, entries)
        counts = {pid: counts.get(pid, 0) + 1 for pid in names}
        for pid, count in counts.items():
            if count > allowed:
                raise ClusterLost(
                    f"The process {_script(pid) or names[pid]} (PID {pid} as its supervisor sees it) on {host} "
                    f"was stopped {stall_s:.0f} s ago.",
                    fix="Look for the sender of SIGSTOP (kill -STOP, a frozen cgroup); VERLJOB_STALL_S waits longer.",
                    host=host,
                )
        await asyncio.sleep(_POLL_S)


class _Engines:
    """The engines of vLLM servers among our descendants. verl 0.9 waits for the answers of one that has ended."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._servers: set[int] = set()
        """Those that have had an engine."""
        self._without: dict[int, int] = {}
        """Polls since a server has none."""

    def look(self, family: dict[int, _Entry]) -> None:
        """Raise ClusterLost if a server of our descendants, which lives, has had no engine for _ENGINE_GRACE_S."""
        living = {pid: entry for pid, entry in family.items() if not entry.zombie}
        servers = {pid for pid, entry in living.items() if entry.name.startswith(_SERVER)}
        with_engine = {entry.parent for entry in living.values() if entry.name == _ENGINE}
        self._servers |= servers & with_engine
        lost = (self._servers & servers) - with_engine
        self._without = {pid: self._without.get(pid, 0) + 1 for pid in lost}
        for pid, count in self._without.items():
            if count > _ENGINE_GRACE_S / _POLL_S:
                raise ClusterLost(
                    f"The engine (VLLM::EngineCore) of the vLLM server with the PID {pid} on {self._host} ended, and "
                    f"the training did not within {_ENGINE_GRACE_S:.0f} s.",
                    fix="Look for the engine's first error above, and for the kernel's log of that node (Xid, OOM).",
                    host=self._host,
                    failure_class="vllm",
                )


def _script(pid: int) -> str:
    """Return the name of the script that a shell runs, such as node.sh; empty for other processes."""
    try:
        shell, script, *_ = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except (OSError, ValueError):
        return ""
    return Path(script).name if shell.endswith("sh") and script.endswith(".sh") else ""


def lives(pid: int, name: str) -> bool:
    """Return whether a process with this PID and command name lives and is not a zombie."""
    entry = _entry(str(pid))
    return entry is not None and entry.name == name and not entry.zombie


def reap_orphans(started: set[int], seen: int) -> int:
    """Wait for an adopted zombie if it was ``seen`` at the last call; return one that is seen now, 0 for none.

    Processes that we ``started`` are left to asyncio. It reports a PID some time after the fork, when a short process
    may have ended already: so a zombie is waited for only at the second call.
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
    queue = list(children.get(root or os.getpid(), []))
    while queue:
        pid = queue.pop()
        queue += children.get(pid, [])
        found[pid] = entries[pid]
    return found


def _entries() -> dict[int, _Entry]:
    try:
        names = os.listdir("/proc")
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return {}  # of a PID namespace that ends: the kernel kills this process next
    found = {int(pid): _entry(pid) for pid in names if pid.isdigit()}
    return {pid: entry for pid, entry in found.items() if entry is not None}


def _entry(pid: str) -> _Entry | None:
    """Read a process with few system calls: this runs for all processes every other second."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:  # it has ended
        return None
    try:
        name, _, rest = os.read(descriptor, 1024).partition(b"(")[2].rpartition(b")")  # a name may contain brackets
    except OSError:
        return None
    finally:
        os.close(descriptor)
    state, parent = rest.split(None, 2)[:2]
    return _Entry(name.decode("utf-8", "replace"), int(parent), state.decode())


async def end_all(grace_s: float) -> list[str]:
    """End every descendant with TERM, after ``grace_s`` with KILL; return the names of those that survived KILL."""
    if os.getppid() in stopped():
        os.kill(os.getppid(), signal.SIGCONT)  # a stopped init would not notice our own end
    send(descendants(), signal.SIGTERM)
    if not await until(lambda: not descendants(), deadline=Deadline(grace_s), poll_s=0.1):
        kill = Deadline(1.0)
        while descendants() and kill.left_s() > 0:
            send(descendants(), signal.SIGKILL)  # repeatedly: a process may have forked before the signal
            await asyncio.sleep(0.05)
    return sorted(descendants().values())


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those of the processes that have not ended."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
