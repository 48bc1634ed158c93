"""Watches checkpoints while the training runs, and ends it after one when the job's time is nearly over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from verl_node.errors import TimeNearlyOver
from verl_node.reporting import files
from verl_node.reporting.verdict import write_by_rename
from verl_node.supervision.waiting import Deadline, until
from verl_node.training import checkpoints

SAVED = "checkpoint"  # in the run directory: the step that this attempt saved last, for launch.sh
NOTICE = "expires"  # in the run directory, by launch.sh: until when a checkpoint may be waited for, in epoch seconds

_LOOK_S = 5.0
_NOTICE_S = 1.0
_LOG_S = 10.0  # verl logs a step's metrics after it saved and validated


class Saves:
    """The whole checkpoints of this attempt, as they come. Those of earlier attempts do not count."""

    def __init__(self, folder: Path, run_dir: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._run_dir = run_dir
        self._say = say
        self._problem = ""
        self.logged = 0  # the step whose metrics came last; whoever gets them sets it
        self.step = self._newest(0)

    async def watch(self) -> None:
        """Keep the note of the last one, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> int:
        """Return the step of the newest whole checkpoint, and note it where it is new."""
        step = await asyncio.get_running_loop().run_in_executor(None, self._newest, self.step)
        if step > self.step:
            self.step = step
            try:
                write_by_rename(self._run_dir / SAVED, f"{step}\n")
            except OSError as error:
                self._say(f"{self._run_dir / SAVED} could not be written: {error.strerror}")
        return self.step

    async def until_time_is_over(self) -> None:
        """Wait for Slurm's notice, then for one more checkpoint. Raises TimeNearlyOver when it is there, or too late.

        launch.sh leaves the notice only where the job will be started again; otherwise every minute counts.
        """
        deadline = Deadline(await self._notice() - time.time())  # the clock may be set while we wait
        before = await self.look()
        left_s = deadline.left_s()
        self._say(f"Slurm ends this job soon: training ends at its next checkpoint, at the latest in {left_s:.0f} s")
        while await self.look() == before and deadline.left_s() > 0:
            await asyncio.sleep(_NOTICE_S)
        if self.step > before:
            await until(lambda: self.logged >= self.step, deadline=Deadline(_LOG_S))
        saved = f"at the checkpoint of step {self.step}" if self.step > before else "without another checkpoint"
        raise TimeNearlyOver(
            f"Slurm said that the job's time is nearly over, and training was ended {saved}.",
            fix="The next attempt goes on from the last whole checkpoint.",
        )

    async def _notice(self) -> float:
        while True:
            try:
                return float(files.read(self._run_dir / NOTICE))
            except (OSError, ValueError):  # not there, or away for a moment
                await asyncio.sleep(_NOTICE_S)

    def _newest(self, known: int) -> int:
        """A file system that fails for a moment costs a look, and is told once."""
        try:
            return checkpoints.newest(self._folder, known).step
        except OSError as error:
            problem = f"{self._folder} cannot be read: {error.strerror}"
            if problem != self._problem:
                self._say(problem)
            self._problem = problem
            return known
