"""Running checks, some of which never answer."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from verl_node.checks import runner
from verl_node.checks.check import Check
from verl_node.checks.result import OK, Outcome, Result
from verl_node.checks.runner import Run
from verl_node.settings.settings import Settings

DEAF = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"


def made(name: str, run: Callable[[], Result], limit_s: float = 5.0, severity: str = "") -> Check:
    return Check(name, f"Purpose of {name}.", "ray-gcs", lambda _settings, _gpus: run(), limit_s, severity=severity)


def outcomes(*checks: Check) -> dict[str, Outcome]:
    run = Run.begin(checks, Settings.from_env({}), 0)
    return {found.check: found for found in asyncio.run(run.outcomes())}


def after(seconds: float) -> Callable[[], Result]:
    def run() -> Result:
        time.sleep(seconds)
        return OK

    return run


def test_checks_run_in_parallel_and_are_reported_in_order() -> None:
    began = time.monotonic()
    found = outcomes(*(made(f"slow{number}", after(0.3)) for number in range(12)), made("bad", lambda: BAD))

    assert time.monotonic() - began < 2
    assert list(found) == [*(f"slow{number}" for number in range(12)), "bad"]
    assert (found["bad"].severity, found["bad"].expected, found["bad"].bad) == ("fail", "more", True)
    assert found["slow3"].seconds >= 0.3


BAD = Result("fail", "Little.", "Give more.", "more")


def test_hanging_check_is_named_and_delays_no_other(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    began = time.monotonic()

    found = outcomes(
        made("quick", lambda: OK),
        made("fifo", lambda: Result("ok", fifo.read_text()), 0.5),
        made("deaf", lambda: Result("ok", str(subprocess.call([sys.executable, "-c", DEAF]))), 0.6),
        made("lenient", after(60), 0.4, severity="warn"),
    )

    assert time.monotonic() - began < 3
    assert found["quick"].severity == "ok"
    assert (found["fifo"].severity, found["fifo"].seen) == ("fail", "No answer after 0 s.")
    assert found["deaf"].bad
    assert found["lenient"].severity == "warn"
    assert "Purpose of fifo." in found["fifo"].expected


def test_time_without_a_core_extends_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "waited_for_a_core_s", lambda _: 2.0)

    assert outcomes(made("starved", after(0.6), 0.3))["starved"].severity == "ok"


def test_waiting_time_grows_beside_a_busy_process_on_the_same_core() -> None:
    core = next(iter(os.sched_getaffinity(0)))
    busy = [sys.executable, "-c", "while True: pass"]
    pair = [subprocess.Popen(busy, preexec_fn=lambda: os.sched_setaffinity(0, {core})) for _ in range(2)]  # noqa: PLW1509
    try:
        deadline = time.monotonic() + 20
        while not all(runner.waited_for_a_core_s(process.pid) > 0.2 for process in pair):
            assert time.monotonic() < deadline, [runner.waited_for_a_core_s(process.pid) for process in pair]
            time.sleep(0.1)
    finally:
        for process in pair:
            process.kill()
            process.wait()
    assert runner.waited_for_a_core_s(pair[0].pid) == 0.0


def test_descendants_of_a_check_are_killed(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    script = f"import os, pathlib; pathlib.Path({str(marker)!r}).write_text(str(os.getpid())); {DEAF}"
    outcomes(made("deaf", lambda: Result("ok", str(subprocess.call([sys.executable, "-c", script]))), 1.0))

    end = time.monotonic() + 5
    while Path("/proc", marker.read_text(), "stat").exists() and not _zombie(marker.read_text()):
        assert time.monotonic() < end
        time.sleep(0.02)


def _zombie(pid: str) -> bool:
    return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_hard_stop_wins_over_longer_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "HARD_STOP_S", 0.5)
    began = time.monotonic()

    found = outcomes(made("long", after(60), 600))

    assert time.monotonic() - began < 3
    assert found["long"].bad


def test_child_that_survives_kill_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Like a process in an uninterruptible sleep: signals do not end it, and its pipe stays open."""
    began = time.monotonic()
    run = Run.begin([made("stuck", after(5), 0.3)], Settings.from_env({}), 0)
    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, lambda *_: None)

    (found,) = asyncio.run(run.outcomes())

    assert time.monotonic() - began < 3
    assert found.bad
    monkeypatch.undo()
    run._kill()


def test_crash_of_a_check_is_a_warning() -> None:
    def wrong() -> Result:
        raise RuntimeError("as the test says")

    found = outcomes(made("wrong", wrong), made("right", lambda: OK))

    assert (found["wrong"].severity, found["right"].severity) == ("warn", "ok")
    assert "mistake" in found["wrong"].seen
