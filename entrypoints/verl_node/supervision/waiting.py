"""Waits with a name and a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_AGAIN_S = 1.0


class Deadline:
    """A moment that several waits share. Times in seconds."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    def restart(self) -> None:
        """Begin anew, because of something that the wait is not about."""
        self._end = time.monotonic() + self.timeout_s

    def left_s(self) -> float:
        """Return what is left, never below zero."""
        return max(0.0, self._end - time.monotonic())


async def until(predicate: Callable[[], bool], *, deadline: Deadline, poll_s: float = 0.2) -> bool:
    """Poll until the predicate holds; False when the deadline came first."""
    while not predicate():
        if deadline.left_s() == 0:
            return False
        await asyncio.sleep(min(poll_s, deadline.left_s()))
    return True


async def within(deadline: Deadline, awaitable: Awaitable[T]) -> T:
    """Await something until the deadline. Raises asyncio.TimeoutError, which is no builtin before Python 3.11."""
    return await asyncio.wait_for(awaitable, deadline.left_s())


async def unless(*watchers: Coroutine[Any, Any, None], story: Coroutine[Any, Any, T]) -> T:
    """Run the story to its end unless a watcher raises first; then the story is cancelled and that error raised.

    A watcher that returns has nothing left to watch for. When both end at once the story wins.
    """
    main = asyncio.ensure_future(story)
    watching = {asyncio.ensure_future(watcher) for watcher in watchers}
    try:
        while not main.done():
            done, _ = await asyncio.wait({main, *watching}, return_when=asyncio.FIRST_COMPLETED)
            failed = next((task for task in done - {main} if task.exception() is not None), None)
            watching -= done
            if failed is not None and not main.done():
                failed.result()
        return main.result()
    finally:
        await ended({main, *watching})


async def ended(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks until all have ended, whatever they ended with.

    Once is not enough: before Python 3.12 `asyncio.wait_for` swallows a cancellation that comes in the very moment of
    what it waits for, and a loop around it goes on.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)  # so that asyncio misses nobody who asks for them
