"""Lease on a FIFO that node.sh holds open: this node ends when node.sh is gone or stopped."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from verl_node.errors import BadSettings, ClusterLost, EndedFromOutside

_HEARTBEAT_S = 1.0  # of node.sh, from a loop that waits for nothing else

# Eight jobs that started on two cores had 97 tasks per core, and a healthy node.sh sent no heartbeat for 4 s; drills
# and trainings have up to 10. node.sh weighs the container's silence by the same two numbers; a test holds them equal,
# since node.sh and the image may be of different versions.
TASKS_PER_CORE = 16
MIN_WEIGHT = 1 / 16  # so that a stopped node.sh is always detected


async def watch(path: Path, stall_s: float) -> None:
    """Wait for end of file, or until node.sh has sent no heartbeat for ``stall_s`` seconds.

    Raises EndedFromOutside or ClusterLost. node.sh opens the FIFO before it starts us: without a writer the lease has
    ended already, which only a read shows, since the kernel reports no hang-up to a reader that never had a writer.

    Children do not inherit the descriptor (PEP 446), so none of them can hold the lease open.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise BadSettings(
            f"VERLJOB_LEASE names {path}, which cannot be opened: {error.strerror}.",
            fix="Let node.sh make it, or unset VERLJOB_LEASE.",
        ) from error
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await _until_end(descriptor, readable, stall_s)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    raise EndedFromOutside(
        f"The lease {path} ended: node.sh or the container engine of this node is gone.",
        fix="Look for what ended the job step: scancel, the time limit, or another node's failure.",
    )


async def _until_end(descriptor: int, readable: asyncio.Event, stall_s: float) -> None:
    """Return at end of file. Raises ClusterLost; a node.sh that never sent a heartbeat may stay silent."""
    silence = 0.0  # missed heartbeats, counted and not timed: this process may have been stopped, too
    started = False
    while True:
        data = _read(descriptor)
        if data == b"":
            return
        if data is not None:
            silence, started = 0.0, True
        readable.clear()
        if not await _set(readable, _HEARTBEAT_S):
            silence += weight() if started else 0.0
        if silence >= stall_s / _HEARTBEAT_S:
            raise ClusterLost(
                f"node.sh of this node sent no heartbeat for {stall_s:.0f} s: it is stopped.",
                fix="Look for the sender of SIGSTOP (kill -STOP, scontrol suspend); VERLJOB_STALL_S waits longer.",
            )


def weight(loadavg: Path = Path("/proc/loadavg"), cores: int | None = None) -> float:
    """Return the weight of a missed heartbeat: 1.0, less on a machine with more than TASKS_PER_CORE runnable tasks."""
    with suppress(OSError, ValueError, IndexError):  # without /proc/loadavg
        runnable = int(loadavg.read_text().split()[3].partition("/")[0])
        return min(1.0, max(MIN_WEIGHT, TASKS_PER_CORE * (cores or os.cpu_count() or 1) / max(runnable, 1)))
    return 1.0


async def _set(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait until the event is set. `asyncio.wait_for` may swallow a cancellation that comes with the event (3.11)."""
    waiter = asyncio.ensure_future(event.wait())
    try:
        done, _ = await asyncio.wait({waiter}, timeout=timeout_s)
    finally:
        waiter.cancel()
    return bool(done)


def _read(descriptor: int) -> bytes | None:
    try:
        return os.read(descriptor, 4096)
    except BlockingIOError:
        return None
