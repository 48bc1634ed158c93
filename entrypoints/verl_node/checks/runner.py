"""Runs checks in a forked process, in threads with time limits, so that a hanging check delays no other.

The supervisor forks before its event loop starts: all modules are imported, so a fork costs a few milliseconds. A check
may hang in a way that not even KILL ends (a process in an uninterruptible sleep of NFS or of a driver): then the
supervisor continues without the child and reports the name of the check.
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

from verl_node.checks.check import FAIL, Check
from verl_node.checks.cluster import Facts
from verl_node.checks.node import gpus as gpu_checks
from verl_node.checks.node import rdma
from verl_node.checks.result import Outcome
from verl_node.gpu import platforms
from verl_node.gpu.status import NoAnswer
from verl_node.network import rails
from verl_node.settings.settings import Settings

HARD_STOP_S = 30.0
DEEP_STOP_S = 180.0
MEMINFO = Path("/proc/meminfo")
_THREAD_PATIENCE_S = 0.05
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)


class Run:
    """Checks that are running on this node."""

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
        """Start them. Call it before any thread or event loop exists."""
        read, write = os.pipe()
        process = os.fork()
        if process == 0:
            try:
                os.close(read)
                _run_in_child(checks, settings, gpus, write)
            except RuntimeError as error:  # no thread can be started: the limit of processes
                print(f"checks: {error}", flush=True)  # noqa: T201
            finally:
                os._exit(0)
        os.close(write)
        return cls(checks, settings.allocation.host, process, read)

    async def outcomes(self) -> list[Outcome]:
        """Wait until every check has answered or timed out; return outcomes in the checks' order."""
        answered: dict[str, Outcome] = {}
        reader = asyncio.StreamReader(limit=1 << 20)
        pipe = os.fdopen(self._answers, "rb")
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            ended = await self._read(reader, answered)
        finally:
            transport.close()
            self._kill()
        return [answered.get(check.name) or self._unanswered(check, ended) for check in self._checks]

    async def _read(self, reader: asyncio.StreamReader, answered: dict[str, Outcome]) -> bool:
        """Read answers until none is pending; return False if time ran out."""
        starved_s = 0.0  # read from /proc when the time is over, not for every answer
        while True:
            pending = [check.limit_s for check in self._checks if check.name not in answered]
            pending += [] if self.facts else [gpu_checks.TIMEOUT_S]
            if not pending:
                return True
            allowed_s = max(pending)
            try:
                left_s = self._left_s(allowed_s + starved_s)
                line = await asyncio.wait_for(reader.readline(), max(_THREAD_PATIENCE_S if starved_s else 0.0, left_s))
            except asyncio.TimeoutError:
                starved_s = waited_for_a_core_s(self._process)
                if self._left_s(allowed_s + starved_s) > 0:
                    continue
                return False
            if not line:
                return True
            message = json.loads(line)
            if "facts" in message:
                self.facts = message["facts"]
            else:
                answered[message["check"]] = Outcome(host=self._host, **message)

    def _left_s(self, allowed_s: float) -> float:
        """Return the rest of a limit, which includes the time without a core."""
        return min(allowed_s, self._stop_s) - (time.monotonic() - self._began)

    def _unanswered(self, check: Check, ended: bool) -> Outcome:
        if ended:  # its thread printed a traceback
            return Outcome(
                check.name,
                self._host,
                "warn",
                "It crashed: a mistake in its own code.",
                "",
                "Report the traceback above.",
            )
        waited_s = min(check.limit_s, self._stop_s)
        fix = "Find the file system, driver or name server that hangs; exclude the node."
        return Outcome(
            check.name,
            self._host,
            check.severity or FAIL,
            f"No answer after {waited_s:.0f} s.",
            check.about,
            fix,
            waited_s,
        )

    def _kill(self) -> None:
        """Kill the child without waiting; the node's shutdown reports survivors."""
        for kill in (os.killpg, os.kill):  # it may not have its own process group yet
            with suppress(ProcessLookupError):
                kill(self._process, signal.SIGKILL)
        with suppress(ChildProcessError):  # collected as an orphan
            os.waitpid(self._process, os.WNOHANG)


def _run_in_child(checks: Sequence[Check], settings: Settings, gpus: int, answers: int) -> None:
    """Run all checks and write a line for each answer."""
    os.setsid()
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    lock = threading.Lock()

    def send(**message: object) -> None:
        with lock:
            os.write(answers, json.dumps(message).encode() + b"\n")

    def run(check: Check) -> None:
        began = time.monotonic()
        result = check(settings, gpus)
        send(check=check.name, **asdict(result), seconds=round(time.monotonic() - began, 3))

    tasks: deque[Callable[[], None]] = deque(
        [*(partial(run, check) for check in checks), lambda: send(facts=gather_facts(settings, gpus))]
    )
    _run_in_threads(tasks)


def _run_in_threads(tasks: deque[Callable[[], None]]) -> None:
    """Run all tasks; start another thread for the rest when one does not finish within a moment.

    A thread costs more than most checks, which take microseconds.
    """

    def work() -> None:
        while True:
            try:
                task = tasks.popleft()
            except IndexError:
                return
            task()

    threads = []
    while tasks:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        threads.append(thread)
        thread.join(_THREAD_PATIENCE_S)
    for thread in threads:  # the supervisor kills this process if one hangs
        thread.join()


def gather_facts(settings: Settings, gpus: int) -> Facts:
    """Return the facts for the cluster checks, without those of a driver that fails."""
    chosen = rails.choose(rdma.read_hcas()).ports
    lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines() if ":" in line)
    available = int(lines["MemAvailable"].split()[0]) << 10
    memory = min(available, settings.memory_bytes or available)
    facts: Facts = {"memory": memory, "rails": [port.name for port in chosen]}
    if gpus and platforms.find(settings.platform).devices:
        try:
            states = gpu_checks.job_gpus(settings, gpus)
        except NoAnswer:
            states = []
        if states:
            facts.update(
                driver=states[0].driver,
                models=sorted({gpu.model for gpu in states}),
                gpu_total=min(gpu.total for gpu in states),
                gpu_free=min(gpu.total - gpu.used for gpu in states),
            )
    return facts


def waited_for_a_core_s(process: int) -> float:
    """Return the longest time that a thread of the process was runnable without a core; 0 if it is unknown.

    The second figure of schedstat, in nanoseconds (Documentation/scheduler/sched-stats.rst of Linux).
    """
    waits = [0.0]
    for file in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with suppress(OSError, ValueError, IndexError):  # a thread that has just ended; a kernel without schedstat
            waits.append(int(file.read_text().split()[1]) / 1e9)
    return max(waits)
