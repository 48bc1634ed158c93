"""Runs checks in a process of their own, in threads with time limits, so that one that hangs delays no other.

The supervisor forks before its event loop starts: everything is imported, so this costs a few milliseconds. What a
check waits for may never answer, not even KILL (a process in an uninterruptible sleep of NFS or of a driver): then the
supervisor goes on without its child, and says which check it was.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

from verl_node.checks import facts
from verl_node.checks.check import FAIL, Check
from verl_node.checks.facts import Facts
from verl_node.checks.result import Outcome
from verl_node.settings.settings import Settings

HARD_STOP_S = 30.0
DEEP_STOP_S = 180.0
_PATIENCE_S = 0.05
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)


class Run:
    """Checks that have been started on this node."""

    def __init__(self, checks: Sequence[Check], host: str, process: int, answers: int) -> None:
        self.facts: Facts = {}
        self._checks = checks
        self._host = host
        self._process = process
        self._answers = answers
        self._began = time.monotonic()
        self._stop_s = DEEP_STOP_S if any(check.deep for check in checks) else HARD_STOP_S

    @classmethod
    def begin(cls, checks: Sequence[Check], settings: Settings, gpus: int) -> Run:
        """Start them. Call it before there are threads or an event loop."""
        read, write = os.pipe()
        process = os.fork()
        if process == 0:
            try:
                os.close(read)
                _work(checks, settings, gpus, write)
            except RuntimeError as error:  # no thread may be started: the limit of processes
                print(f"checks: {error}", flush=True)  # noqa: T201
            finally:
                os._exit(0)
        os.close(write)
        return cls(checks, settings.allocation.host, process, read)

    async def outcomes(self) -> list[Outcome]:
        """Wait until each has answered or its time is over; return the outcomes in the checks' order."""
        answered: dict[str, Outcome] = {}
        reader = asyncio.StreamReader(limit=1 << 20)
        pipe = os.fdopen(self._answers, "rb")
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            whole = await self._read(reader, answered)
        finally:
            transport.close()
            self._end()
        return [answered.get(check.name) or self._silent(check, whole) for check in self._checks]

    async def _read(self, reader: asyncio.StreamReader, answered: dict[str, Outcome]) -> bool:
        """Take answers until all that have time left are there; tell whether the child ended by itself."""
        starved_s = 0.0  # looked up when time is over, and not for every answer
        while True:
            late = [check.limit_s for check in self._checks if check.name not in answered]
            late += [] if self.facts else [facts.LIMIT_S]
            if not late:
                return True
            allowed_s = max(late)
            try:
                left_s = self._left_s(allowed_s + starved_s)
                line = await asyncio.wait_for(reader.readline(), max(_PATIENCE_S if starved_s else 0.0, left_s))
            except asyncio.TimeoutError:
                starved_s = waited_for_a_core_s(self._process)
                if self._left_s(allowed_s + starved_s) > 0:
                    continue
                return False
            if not line:
                return True
            told = json.loads(line)
            if "facts" in told:
                self.facts = told["facts"]
            else:
                answered[told["check"]] = Outcome(host=self._host, **told)

    def _left_s(self, allowed_s: float) -> float:
        """What is left of a limit. It grows by the time in which a busy machine gave the checks no core."""
        return min(allowed_s, self._stop_s) - (time.monotonic() - self._began)

    def _silent(self, check: Check, ended: bool) -> Outcome:
        if ended:  # its thread printed a traceback
            return Outcome(
                check.name, self._host, "warn", "It made a mistake of its own.", "", "Report the lines above."
            )
        waited_s = min(check.limit_s, self._stop_s)
        fix = "Look at what it waits for: a file system, a driver or a name server that hangs; exclude the node."
        return Outcome(
            check.name,
            self._host,
            check.severity or FAIL,
            f"No answer after {waited_s:.0f} s.",
            check.about,
            fix,
            waited_s,
        )

    def _end(self) -> None:
        """Kill what is left of it, and do not wait: what KILL does not end is told of when the node ends."""
        for kill in (os.killpg, os.kill):  # it may not have its own group yet
            with suppress(ProcessLookupError):
                kill(self._process, signal.SIGKILL)
        with suppress(ChildProcessError):  # collected as an orphan
            os.waitpid(self._process, os.WNOHANG)


def _work(checks: Sequence[Check], settings: Settings, gpus: int, answers: int) -> None:
    """Be the child: ask everything, write an answer a line, end without waiting for what hangs."""
    os.setsid()
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    lock = threading.Lock()

    def tell(**told: object) -> None:
        with lock:
            os.write(answers, json.dumps(told).encode() + b"\n")

    def ask(check: Check) -> None:
        began = time.monotonic()
        result = check(settings, gpus)
        tell(check=check.name, **asdict(result), seconds=round(time.monotonic() - began, 3))

    todo: deque[Callable[[], None]] = deque(
        [*(partial(ask, check) for check in checks), lambda: tell(facts=facts.gather(settings, gpus))]
    )
    _spread(todo)


def waited_for_a_core_s(process: int) -> float:
    """Return how long that thread of a process was ready and did not run which did so longest; 0 where none tells.

    The second figure of schedstat, in nanoseconds (Documentation/scheduler/sched-stats.rst of Linux).
    """
    waits = [0.0]
    for file in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with suppress(OSError, ValueError, IndexError):  # a thread that has just ended; a kernel without them
            waits.append(int(file.read_text().split()[1]) / 1e9)
    return max(waits)


def _spread(todo: deque[Callable[[], None]]) -> None:
    """Do all of it; whoever is held up for a moment is left behind, and another thread goes on with the rest.

    A thread costs more than most checks, which take microseconds.
    """

    def work() -> None:
        while True:
            try:
                task = todo.popleft()
            except IndexError:
                return
            task()

    threads = []
    while todo:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        threads.append(thread)
        thread.join(_PATIENCE_S)
    for thread in threads:  # whoever began all this kills what hangs
        thread.join()
