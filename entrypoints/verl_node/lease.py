"""The lease: a FIFO that node.sh holds open; when node.sh is gone, however it died, this node ends too."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from verl_node.errors import BadSettings, EndedFromOutside


async def watch(path: Path) -> None:
    """Wait for end of file. Raises EndedFromOutside then; nobody is to write, and what is written is ignored.

    node.sh opens it before it starts us: a FIFO that nobody holds open is a lease that has ended already, which only a
    read tells, since the kernel reports no hang-up to a reader that never had a writer.

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
        while not _ended(descriptor):
            await readable.wait()
            readable.clear()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    raise EndedFromOutside(
        f"The lease {path} ended: node.sh or the container engine of this node is gone.",
        fix="Look for what ended the job step: scancel, the time limit, or another node's failure.",
    )


def _ended(descriptor: int) -> bool:
    try:
        return os.read(descriptor, 4096) == b""
    except BlockingIOError:
        return False
