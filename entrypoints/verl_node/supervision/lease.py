"""Lease on a FIFO that node.sh holds open: this node ends when node.sh is gone or stopped."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from verl_node.errors import BadSettings, ClusterLost, EndedFromOutside
from verl_node.supervision import load

# node.sh writes into it every second, from a loop that waits for nothing else.
_SIGN_S = 1.0


async def watch(path: Path, stall_s: float) -> None:
    """Wait for end of file, or for a holder that wrote into it and has not done so for ``stall_s`` seconds.

    Raises EndedFromOutside or ClusterLost then. node.sh opens it before it starts us: a FIFO that nobody holds open is
    a lease that has ended already, which only a read tells, since the kernel reports no hang-up to a reader that never
    had a writer.

    The descriptor is not inherited by children (PEP 446), so nothing of ours can hold the lease open.
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
        await _until_it_ends(descriptor, readable, stall_s)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    raise EndedFromOutside(
        f"The lease {path} ended: node.sh or the container engine of this node is gone.",
        fix="Look for what ended the job step: scancel, the time limit, or another node's failure.",
    )


async def _until_it_ends(descriptor: int, readable: asyncio.Event, stall_s: float) -> None:
    """Return at its end. Raises ClusterLost; a holder that never wrote may go on in silence."""
    silent = 0.0  # signs that did not come, counted and not timed: we may have been held up ourselves
    signed = False
    while True:
        signs = _read(descriptor)
        if signs == b"":
            return
        if signs is not None:
            silent, signed = 0.0, True
        readable.clear()
        if not await _set(readable, _SIGN_S):
            silent += load.weight() if signed else 0.0
        if silent >= stall_s / _SIGN_S:
            raise ClusterLost(
                f"node.sh of this node sent no heartbeat for {stall_s:.0f} s: it is stopped.",
                fix="Look for who sent it SIGSTOP (kill -STOP, scontrol suspend); VERLJOB_STALL_S waits longer.",
            )


async def _set(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait for it. Not by `asyncio.wait_for`, which may swallow a cancellation that comes with the event (3.11)."""
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
