"""Helpers of Ray start when the lock of the supervisor is released."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from verl_node.ray_node import fast_start

from tests.support.paths import ENTRYPOINTS

END_S = 10
SAY = ["sh", "-c", "echo started; nice"]


def start_delayed(lock: Path, niceness: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen([*fast_start.delayed(niceness, str(lock)), *SAY], stdout=subprocess.PIPE, text=True)


def waits(process: subprocess.Popen[str]) -> bool:
    """Return whether the process waits in the kernel for a lock that another one holds."""
    end = time.monotonic() + END_S
    while time.monotonic() < end and process.poll() is None:
        if any(
            f"-> FLOCK  ADVISORY  READ {process.pid} " in line for line in Path("/proc/locks").read_text().splitlines()
        ):
            return True
        time.sleep(0.01)
    return False


def test_a_command_starts_when_the_lock_is_released(tmp_path: Path) -> None:
    async def play() -> str:
        held = fast_start.StartLock(tmp_path / "ray")
        process = start_delayed(held.path)
        assert waits(process)
        held.release()
        held.release()
        return process.communicate(timeout=END_S)[0]

    assert asyncio.run(play()).startswith("started")
    assert not list((tmp_path / "ray").iterdir())


def test_a_command_starts_when_the_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_start, "MAX_DELAY_S", 0.2)

    async def play() -> str:
        held = fast_start.StartLock(tmp_path)
        process = start_delayed(held.path)
        assert waits(process)
        await asyncio.sleep(0.5)
        return process.communicate(timeout=END_S)[0]

    assert asyncio.run(play()).startswith("started")


def test_a_command_starts_when_the_holder_of_the_lock_was_killed(tmp_path: Path) -> None:
    hold = "import asyncio, pathlib, sys, time; sys.path.insert(0, sys.argv[1])\n"
    hold += "from verl_node.ray_node.fast_start import StartLock\n"
    hold += "async def main(): print(StartLock(pathlib.Path(sys.argv[2])).path, flush=True); time.sleep(60)\n"
    hold += "asyncio.run(main())"
    entrypoints = str(ENTRYPOINTS)
    argv = [sys.executable, "-c", hold, entrypoints, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        process = start_delayed(Path(holder.stdout.readline().strip()))
        assert waits(process)
        holder.send_signal(signal.SIGKILL)

    assert process.communicate(timeout=END_S)[0].startswith("started")


def test_a_lock_that_was_removed_delays_nothing_and_the_command_has_its_niceness(tmp_path: Path) -> None:
    output = start_delayed(tmp_path / "gone", niceness=3).communicate(timeout=END_S)[0]

    assert output.split() == ["started", str(min(19, os.nice(0) + 3))]
