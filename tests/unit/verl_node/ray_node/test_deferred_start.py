"""What stands by until a cluster is checked."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from verl_node.ray_node import deferred_start

from tests.support.paths import ENTRYPOINTS

END_S = 10
SAY = ["sh", "-c", "echo started; nice"]


def stand_by(lock: Path, niceness: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen([*deferred_start.words(niceness, str(lock)), *SAY], stdout=subprocess.PIPE, text=True)


def waits(process: subprocess.Popen[str]) -> bool:
    """Tell whether it comes to wait in the kernel for the lock of somebody else."""
    end = time.monotonic() + END_S
    while time.monotonic() < end and process.poll() is None:
        if any(
            f"-> FLOCK  ADVISORY  READ {process.pid} " in line for line in Path("/proc/locks").read_text().splitlines()
        ):
            return True
        time.sleep(0.01)
    return False


def test_a_command_starts_when_the_lock_is_given_back(tmp_path: Path) -> None:
    async def play() -> str:
        held = deferred_start.Standby(tmp_path / "ray")
        process = stand_by(held.path)
        assert waits(process)
        held.release()
        held.release()
        return process.communicate(timeout=END_S)[0]

    assert asyncio.run(play()).startswith("started")
    assert not list((tmp_path / "ray").iterdir())


def test_it_starts_by_itself_when_the_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_start, "LONGEST_S", 0.2)

    async def play() -> str:
        held = deferred_start.Standby(tmp_path)
        process = stand_by(held.path)
        assert waits(process)
        await asyncio.sleep(0.5)
        return process.communicate(timeout=END_S)[0]

    assert asyncio.run(play()).startswith("started")


def test_it_starts_when_whoever_held_the_lock_was_killed(tmp_path: Path) -> None:
    hold = "import asyncio, pathlib, sys, time; sys.path.insert(0, sys.argv[1])\n"
    hold += "from verl_node.ray_node.deferred_start import Standby\n"
    hold += "async def main(): print(Standby(pathlib.Path(sys.argv[2])).path, flush=True); time.sleep(60)\n"
    hold += "asyncio.run(main())"
    entrypoints = str(ENTRYPOINTS)
    argv = [sys.executable, "-c", hold, entrypoints, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        process = stand_by(Path(holder.stdout.readline().strip()))
        assert waits(process)
        holder.send_signal(signal.SIGKILL)

    assert process.communicate(timeout=END_S)[0].startswith("started")


def test_a_lock_that_is_gone_holds_nothing_up_and_the_command_stands_back(tmp_path: Path) -> None:
    said = stand_by(tmp_path / "gone", niceness=3).communicate(timeout=END_S)[0]

    assert said.split() == ["started", str(min(19, os.nice(0) + 3))]
