"""Hang detection: a training that makes no step for longer than its past steps suggest."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from verl_node.errors import TrainingStuck

REPORT, END, OFF = "report", "end", "off"

_REMEMBERED = 50  # steps: the median follows a training whose responses grow longer
_POLL_S = 1.0


@dataclass(frozen=True)
class HangPolicy:
    """When training hangs, and the action: ``report`` it, ``end`` the job with 76, or ``off``.

    A step may take ``factor`` times the median step plus ``margin_s``. The first one may take ``first_step_s`` (0: no
    limit), since models load and compile before it.
    """

    action: str = REPORT
    factor: int = 3
    margin_s: float = 60.0
    first_step_s: float = 0.0


class Progress:
    """The steps of a training, timed by a monotonic clock in seconds."""

    def __init__(self, policy: HangPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self.policy = policy
        self._clock = clock
        self._last = clock()
        self._steps = 0
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)

    def step(self, number: int) -> None:
        """Record the end of step ``number``; step 0 is a validation before the training."""
        if number < 1:
            return
        now = self._clock()
        if self._steps:
            self._durations.append(now - self._last)
        self._steps += 1
        self._last = now

    def quiet_s(self) -> float:
        """Return the seconds since the last step, or since the start."""
        return self._clock() - self._last

    def limit_s(self) -> float | None:
        """Return the limit of the current step in seconds, None for no limit.

        There is no estimate before two steps. A step that saves or validates may be long: the longest one counts, too.
        """
        if self._durations:
            median = sorted(self._durations)[len(self._durations) // 2]
            usual = max(self.policy.factor * median, *self._durations)
            return usual + self.policy.margin_s
        return self.policy.first_step_s or None if self._steps == 0 else None

    def stalled(self) -> bool:
        """Return whether the current step exceeds its limit."""
        limit_s = self.limit_s()
        return limit_s is not None and self.quiet_s() > limit_s


async def watch(progress: Progress, note: Callable[[str], None], take_stacks: Callable[[int], Awaitable[str]]) -> None:
    """Report each hang once, with the stacks of the processes. Raises TrainingStuck if the action is ``end``.

    ``take_stacks`` gets the number of the hang and returns a text with the places of the stacks.
    """
    hangs = 0
    while progress.policy.action != OFF:
        await asyncio.sleep(_POLL_S)
        if not progress.stalled():
            continue
        hangs += 1
        quiet_s, limit_s = progress.quiet_s(), progress.limit_s() or 0.0
        note(f"no step for {quiet_s:.0f} s, the limit is {limit_s:.0f} s: taking the stacks of its processes")
        places = await take_stacks(hangs)
        note(places)
        if progress.policy.action == END:
            raise TrainingStuck(
                f"Training made no step for {quiet_s:.0f} s (limit: {limit_s:.0f} s); {places}.",
                fix="Read the stacks; VERLJOB_HANG_MARGIN_S gives slow steps longer, VERLJOB_HANG=report only reports.",
            )
        while progress.stalled():
            await asyncio.sleep(_POLL_S)
        note(f"training continues, after {quiet_s:.0f} s or more without a step")
