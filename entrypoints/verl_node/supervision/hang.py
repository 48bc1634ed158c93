"""Hang detection: a training that makes no step for longer than its past steps suggest."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from verl_node.errors import TrainingStuck

REPORT, END, OFF = "report", "end", "off"

_REMEMBERED = 50  # steps: the median follows a training whose answers grow longer
_LOOK_S = 1.0


@dataclass(frozen=True)
class HangPolicy:
    """What is taken for a hang, and what is then done: ``report`` it, ``end`` the job with 76, or nothing (``off``).

    A step may take ``factor`` times the median step and ``margin_s`` more; the first one ``first_step_s``, 0 for as
    long as it likes: models load and compile before it.
    """

    action: str = REPORT
    factor: int = 3
    margin_s: float = 60.0
    first_step_s: float = 0.0


class Progress:
    """The steps of a training as they come, on a clock in seconds that only counts up."""

    def __init__(self, policy: HangPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self.policy = policy
        self._clock = clock
        self._last = clock()
        self._steps = 0
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)

    def step(self, number: int) -> None:
        """Note that step ``number`` is done; step 0 is a validation before the training."""
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
        """Return the seconds that the step which runs now may take, None for any.

        Before two steps are done nothing is known. A step that saves or validates may be long: once one was, another
        as long is no hang.
        """
        if self._durations:
            median = sorted(self._durations)[len(self._durations) // 2]
            usual = max(self.policy.factor * median, *self._durations)
            return usual + self.policy.margin_s
        return self.policy.first_step_s or None if self._steps == 0 else None

    def stalled(self) -> bool:
        """Tell whether it takes longer than it may."""
        limit_s = self.limit_s()
        return limit_s is not None and self.quiet_s() > limit_s


async def watch(progress: Progress, say: Callable[[str], None], take_stacks: Callable[[int], Awaitable[str]]) -> None:
    """Report each hang once, with the stacks of the processes. Raises TrainingStuck where the user chose so.

    ``take_stacks`` is given the number of the hang and returns in words where the stacks are.
    """
    hangs = 0
    while progress.policy.action != OFF:
        await asyncio.sleep(_LOOK_S)
        if not progress.stalled():
            continue
        hangs += 1
        quiet_s, limit_s = progress.quiet_s(), progress.limit_s() or 0.0
        say(f"no step for {quiet_s:.0f} s, and {limit_s:.0f} s are the limit: taking the stacks of its processes")
        where = await take_stacks(hangs)
        say(where)
        if progress.policy.action == END:
            raise TrainingStuck(
                f"Training made no step for {quiet_s:.0f} s (limit: {limit_s:.0f} s); {where}.",
                fix="Read the stacks; VERLJOB_HANG_MARGIN_S gives slow steps longer, VERLJOB_HANG=report only reports.",
            )
        while progress.stalled():
            await asyncio.sleep(_LOOK_S)
        say(f"training goes on, after {quiet_s:.0f} s or more without a step")
