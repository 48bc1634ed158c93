"""Watches checkpoints while the training runs, and ends it after one shortly before the time limit."""

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

SAVED = "checkpoint"  # in the run directory: the last step that this attempt saved, for launch.sh
NOTICE = "expires"  # in the run directory, by launch.sh: deadline for another checkpoint, in epoch seconds

_POLL_S = 5.0
_NOTICE_POLL_S = 1.0
_LOG_S = 10.0  # verl logs a step's metrics after saving and validation


class CheckpointWatch:
    """Complete checkpoints of this attempt; those of earlier attempts do not count."""

    def __init__(self, folder: Path, run_dir: Path, log: Callable[[str], None]) -> None:
        self._folder = folder
        self._run_dir = run_dir
        self._log = log
        self._problem = ""
        self.logged = 0  # the last step with metrics, set by the reader of the metrics
        self.step = self._newest(0)

    async def watch(self) -> None:
        """Keep the file SAVED up to date, until cancelled."""
        while True:
            await asyncio.sleep(_POLL_S)
            await self.check()

    async def check(self) -> int:
        """Return the step of the newest complete checkpoint, and write a new one to SAVED."""
        step = await asyncio.get_running_loop().run_in_executor(None, self._newest, self.step)
        if step > self.step:
            self.step = step
            try:
                write_by_rename(self._run_dir / SAVED, f"{step}\n")
            except OSError as error:
                self._log(f"{self._run_dir / SAVED} could not be written: {error.strerror}")
        return self.step

    async def stop_after_notice(self) -> None:
        """Wait for the notice, then for one more checkpoint, then raise TimeNearlyOver; at its deadline in any case.

        launch.sh writes the notice only if the job will be requeued; otherwise training uses all of its time.
        """
        deadline = Deadline(await self._notice() - time.time())  # monotonic: the clock may be adjusted meanwhile
        before = await self.check()
        left_s = deadline.left_s()
        self._log(f"Slurm ends this job soon: training ends at its next checkpoint, at the latest in {left_s:.0f} s")
        while await self.check() == before and deadline.left_s() > 0:
            await asyncio.sleep(_NOTICE_POLL_S)
        if self.step > before:
            await until(lambda: self.logged >= self.step, deadline=Deadline(_LOG_S))
        saved = f"at the checkpoint of step {self.step}" if self.step > before else "without another checkpoint"
        raise TimeNearlyOver(
            f"The job's time limit is near (Slurm's signal), and training was ended {saved}.",
            fix="The next attempt resumes from the last complete checkpoint.",
        )

    async def _notice(self) -> float:
        while True:
            try:
                return float(files.read(self._run_dir / NOTICE))
            except (OSError, ValueError):  # not written yet, or the file system fails for a moment
                await asyncio.sleep(_NOTICE_POLL_S)

    def _newest(self, known: int) -> int:
        """Return the newest step, or the known one if the file system fails, which is logged once."""
        try:
            return checkpoints.newest(self._folder, known).step
        except OSError as error:
            problem = f"{self._folder} cannot be read: {error.strerror}"
            if problem != self._problem:
                self._log(problem)
            self._problem = problem
            return known
