from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from verl_node.errors import ClusterLost, EndedFromOutside
from verl_node.supervision import lease
from verl_node.supervision.child import Process
from verl_node.supervision.waiting import Deadline, run_watched, until

from tests.support.paths import ENTRYPOINTS


def test_output_comes_by_the_line_also_without_a_last_newline_or_with_a_very_long_one() -> None:
    lines: list[str] = []
    script = "print('x' * 3000000); print('a'); print('b', end='')"

    async def story() -> int:
        process = await Process.start("test", [sys.executable, "-c", script], os.environ, on_line=lines.append)
        return await process.ended()

    assert asyncio.run(story()) == 0
    assert sum(map(len, lines[:-2])) == 3000000
    assert lines[-2:] == ["a", "b"]


def test_a_signal_gives_128_and_its_number() -> None:
    async def story() -> int:
        process = await Process.start("test", ["sh", "-c", "kill -9 $$"], os.environ, on_line=print)
        return await process.ended()

    assert asyncio.run(story()) == 137


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

    async def story() -> None:
        watch = asyncio.ensure_future(lease.watch(fifo, 20))
        os.write(writers[0], b"noise")
        os.close(writers[0])
        await asyncio.sleep(0.05)
        assert not watch.done()
        os.close(writers[1])
        with pytest.raises(EndedFromOutside, match="ended"):
            await asyncio.wait_for(watch, 2)

    asyncio.run(story())


def test_a_lease_that_nobody_holds_has_ended(tmp_path: Path) -> None:
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


def test_a_watcher_ends_the_story_and_the_story_ends_its_watchers() -> None:
    with pytest.raises(ClusterLost):
        asyncio.run(run_watched(_returns(1, after_s=60), _raises(), _forever()))

    assert asyncio.run(run_watched(_returns(1), _forever())) == 1


def test_a_watcher_that_misses_its_cancellation_is_cancelled_again() -> None:
    """As `asyncio.wait_for` misses one before Python 3.12 when it comes together with what is waited for."""
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


def test_a_lease_is_let_go_at_once_also_in_the_moment_of_a_sign(tmp_path: Path) -> None:
    """Signs come here by the millisecond; with `asyncio.wait_for` Python 3.11 was held up in most of these ends."""
    os.mkfifo(tmp_path / "lease")
    holder = os.open(tmp_path / "lease", os.O_RDWR)
    sign = f"import os, time\nwhile True: os.write({holder}, b'.'); time.sleep(0.001)"

    async def story(number: int) -> int:
        await asyncio.sleep(number % 7 / 1000)
        return number

    with subprocess.Popen([sys.executable, "-c", sign], pass_fds=[holder]) as signs:
        try:
            began = time.monotonic()
            for number in range(60):
                assert asyncio.run(run_watched(story(number), lease.watch(tmp_path / "lease", 20))) == number
            assert time.monotonic() - began < 10
        finally:
            signs.kill()
            os.close(holder)


def test_a_wait_tells_whether_the_deadline_came_first() -> None:
    assert asyncio.run(until(lambda: True, deadline=Deadline(0)))
    assert not asyncio.run(until(lambda: False, deadline=Deadline(0.01), poll_s=0.001))


def test_a_child_that_ends_before_its_number_is_known_is_left_to_who_waits_for_it() -> None:
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
