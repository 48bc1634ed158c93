"""Waits with a deadline; runs a coroutine beside watchers that may end it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_CANCEL_PERIOD_S = 1.0


class Deadline:
    """A moment that several waits share. Times in seconds."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    def restart(self) -> None:
        """Start the timeout again."""
        self._end = time.monotonic() + self.timeout_s

    def left_s(self) -> float:
        """Return the remaining time, never below zero."""
        return max(0.0, self._end - time.monotonic())


async def until(predicate: Callable[[], bool], *, deadline: Deadline, poll_s: float = 0.2) -> bool:
    """Poll until the predicate holds; False when the deadline came first."""
    while not predicate():
        if deadline.left_s() == 0:
            return False
        await asyncio.sleep(min(poll_s, deadline.left_s()))
    return True


async def within(deadline: Deadline, awaitable: Awaitable[T]) -> T:
    """Await something until the deadline. Raises asyncio.TimeoutError, which is not a builtin before Python 3.11."""
    return await asyncio.wait_for(awaitable, deadline.left_s())


async def run_watched(main: Coroutine[Any, Any, T], *watchers: Coroutine[Any, Any, None]) -> T:
    """Run ``main`` to its end unless a watcher raises first: then cancel ``main`` and raise that error.

    A watcher that returns is done. If ``main`` and a watcher end at the same time, the result of ``main`` counts.
    """
    task = asyncio.ensure_future(main)
    watching = {asyncio.ensure_future(watcher) for watcher in watchers}
    try:
        while not task.done():
            done, _ = await asyncio.wait({task, *watching}, return_when=asyncio.FIRST_COMPLETED)
            failed = next((watcher for watcher in done - {task} if watcher.exception() is not None), None)
            watching -= done
            if failed is not None and not task.done():
                failed.result()
        return task.result()
    finally:
        await ended({task, *watching})


async def ended(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks until all have ended.

    Once is not enough: before Python 3.12 `asyncio.wait_for` swallows a cancellation that comes at the same moment as
    its result, and a loop around it continues.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_PERIOD_S)
    await asyncio.gather(*tasks, return_exceptions=True)  # retrieves exceptions, so that asyncio does not log them
