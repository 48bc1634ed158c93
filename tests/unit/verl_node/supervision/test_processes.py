from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from verl_node.errors import ClusterLost, EndedFromOutside
from verl_node.supervision import lease, process_tree
from verl_node.supervision.child import Process
from verl_node.supervision.waiting import Deadline, run_watched, until

from tests.support.paths import ENTRYPOINTS


def test_output_arrives_by_line_also_a_very_long_one_and_without_a_last_newline() -> None:
    lines: list[str] = []
    script = "print('x' * 3000000); print('a'); print('b', end='')"

    async def scenario() -> int:
        process = await Process.start([sys.executable, "-c", script], os.environ, on_line=lines.append)
        return await process.ended()

    assert asyncio.run(scenario()) == 0
    assert sum(map(len, lines[:-2])) == 3000000
    assert lines[-2:] == ["a", "b"]


def test_a_signal_gives_128_and_its_number() -> None:
    async def scenario() -> int:
        process = await Process.start(["sh", "-c", "kill -9 $$"], os.environ, on_line=print)
        return await process.ended()

    assert asyncio.run(scenario()) == 137


def test_end_all_ends_descendants_that_left_their_parent_and_session_and_ignore_term() -> None:
    script = """
        import asyncio, subprocess, time
        from verl_node.supervision import process_tree
        process_tree.adopt_orphans()
        subprocess.run(["sh", "-c", "trap '' TERM; setsid sleep 300 & sleep 300 &"])
        while sorted(process_tree.descendants().values()) != ["sleep", "sleep"]:
            time.sleep(0.01)
        began = time.monotonic()
        assert asyncio.run(process_tree.end_all(0.2)) == []
        assert process_tree.descendants() == {}
        assert time.monotonic() - began < 1.5
    """
    environ = {**os.environ, "PYTHONPATH": str(ENTRYPOINTS)}
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=environ, check=True, timeout=10)


def test_the_lease_holds_as_long_as_one_writer_lives(tmp_path: Path) -> None:
    fifo = tmp_path / "lease"
    os.mkfifo(fifo)
    writers = [os.open(fifo, os.O_RDWR), os.open(fifo, os.O_RDWR)]

    async def scenario() -> None:
        watch = asyncio.ensure_future(lease.watch(fifo, 20))
        os.write(writers[0], b"noise")
        os.close(writers[0])
        await asyncio.sleep(0.05)
        assert not watch.done()
        os.close(writers[1])
        with pytest.raises(EndedFromOutside, match="ended"):
            await asyncio.wait_for(watch, 2)

    asyncio.run(scenario())


def test_a_lease_without_a_holder_has_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lease")

    with pytest.raises(EndedFromOutside):
        asyncio.run(asyncio.wait_for(lease.watch(tmp_path / "lease", 20), 2))


async def _raises() -> None:
    raise ClusterLost("Gone.", fix="")


async def _returns(value: int, after_s: float = 0) -> int:
    await asyncio.sleep(after_s)
    return value


async def _forever() -> None:
    await asyncio.Event().wait()


def test_a_failing_watcher_ends_the_main_task_and_the_main_task_ends_its_watchers() -> None:
    with pytest.raises(ClusterLost):
        asyncio.run(run_watched(_returns(1, after_s=60), _raises(), _forever()))

    assert asyncio.run(run_watched(_returns(1), _forever())) == 1


def test_a_watcher_that_misses_its_cancellation_is_cancelled_again() -> None:
    """As `asyncio.wait_for` does before Python 3.12 if the cancellation comes together with the result."""
    missed: list[bool] = []

    async def watcher() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if missed:
                    raise
                missed.append(True)

    began = time.monotonic()
    assert asyncio.run(run_watched(_returns(1), watcher())) == 1
    assert missed == [True]
    assert time.monotonic() - began < 5


def test_the_watch_of_a_lease_is_cancelled_at_once_also_during_a_heartbeat(tmp_path: Path) -> None:
    """With a heartbeat per millisecond and `asyncio.wait_for`, Python 3.11 was blocked in most of these ends."""
    os.mkfifo(tmp_path / "lease")
    holder = os.open(tmp_path / "lease", os.O_RDWR)
    sign = f"import os, time\nwhile True: os.write({holder}, b'.'); time.sleep(0.001)"

    async def scenario(number: int) -> int:
        await asyncio.sleep(number % 7 / 1000)
        return number

    with subprocess.Popen([sys.executable, "-c", sign], pass_fds=[holder]) as signs:
        try:
            began = time.monotonic()
            for number in range(60):
                assert asyncio.run(run_watched(scenario(number), lease.watch(tmp_path / "lease", 20))) == number
            assert time.monotonic() - began < 10
        finally:
            signs.kill()
            os.close(holder)


def test_a_wait_returns_whether_the_predicate_held_before_the_deadline() -> None:
    assert asyncio.run(until(lambda: True, deadline=Deadline(0)))
    assert not asyncio.run(until(lambda: False, deadline=Deadline(0.01), poll_s=0.001))


def test_a_child_that_ends_before_its_pid_is_recorded_is_left_to_asyncio() -> None:
    script = """
import os, time
from verl_node.supervision import process_tree

orphan = os.fork()
if orphan == 0:
    os._exit(3)
while not (seen := process_tree.reap_orphans(set(), 0)):
    time.sleep(0.01)
assert seen == orphan, seen
assert process_tree.reap_orphans({orphan}, orphan) == 0
assert process_tree.reap_orphans(set(), orphan) == 0
try:
    os.waitpid(orphan, 0)
except ChildProcessError:
    print("collected at the second look")
"""
    env = {**os.environ, "PYTHONPATH": str(ENTRYPOINTS)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("collected at the second look\n", "")


def test_a_pid_namespace_that_ends_has_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its /proc goes stale before the kernel kills its last process."""

    def fail(error: int) -> None:
        def listdir(_: str) -> list[str]:
            raise OSError(error, os.strerror(error), "/proc")

        monkeypatch.setattr(os, "listdir", listdir)

    fail(errno.ESTALE)
    assert (process_tree.descendants(), process_tree.stopped()) == ({}, {})
    fail(errno.EACCES)
    with pytest.raises(PermissionError):
        process_tree.descendants()
