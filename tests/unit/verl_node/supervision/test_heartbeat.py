"""Stopped processes and lost engines are detected; a process that waits for a file system is not stopped."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from verl_node.errors import ClusterLost
from verl_node.network.address import leads_here
from verl_node.supervision import cgroup_events, heartbeat, lease, process_tree

from tests.support.paths import CHECKOUT

BEAT_S = 0.05
STALL_S = BEAT_S * 8
PTRACE_ATTACH, PTRACE_DETACH = 16, 17  # linux/ptrace.h


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", BEAT_S)
    monkeypatch.setattr(lease, "_HEARTBEAT_S", BEAT_S)
    monkeypatch.setattr(process_tree, "_POLL_S", BEAT_S)
    monkeypatch.setattr(process_tree, "_ENGINE_GRACE_S", BEAT_S * 4)


def test_the_heartbeat_continues_while_the_event_loop_is_blocked(tmp_path: Path) -> None:
    pulse = tmp_path / "pulse"
    os.mkfifo(pulse)
    reader = os.open(pulse, os.O_RDWR | os.O_NONBLOCK)

    heartbeat.start(pulse)
    time.sleep(BEAT_S * 6)

    assert len(os.read(reader, 100)) >= 3
    os.close(reader)


def test_a_stopped_holder_of_the_lease_is_detected(tmp_path: Path) -> None:
    fifo = tmp_path / "lease"
    os.mkfifo(fifo)
    holder = os.open(fifo, os.O_RDWR)

    async def scenario() -> None:
        watch = asyncio.ensure_future(lease.watch(fifo, BEAT_S * 4))
        await asyncio.sleep(BEAT_S * 10)
        assert not watch.done()  # who never gave a sign may go on so
        for _ in range(10):
            os.write(holder, b".")
            await asyncio.sleep(BEAT_S)
        assert not watch.done()
        with pytest.raises(ClusterLost, match=r"node\.sh .* no heartbeat"):
            await asyncio.wait_for(watch, 5)

    asyncio.run(scenario())
    os.close(holder)


def test_silence_counts_less_on_an_overloaded_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = tmp_path / "lease"
    os.mkfifo(fifo)
    holder = os.open(fifo, os.O_RDWR)
    monkeypatch.setattr(lease, "weight", lambda: 1 / 4)

    async def scenario() -> None:
        watch = asyncio.ensure_future(lease.watch(fifo, BEAT_S * 4))
        os.write(holder, b".")
        await asyncio.sleep(BEAT_S * 8)
        assert not watch.done()
        with pytest.raises(ClusterLost, match="no heartbeat"):
            await asyncio.wait_for(watch, 5)

    asyncio.run(scenario())
    os.close(holder)


@pytest.mark.parametrize(
    ("load", "cores", "weight"),
    [
        ("0.10 0.20 0.30 1/200 77", 2, 1.0),
        ("9.00 9.00 9.00 32/200 77", 2, 1.0),
        ("99.0 9.00 9.00 64/900 77", 2, 0.5),
        ("99.0 9.00 9.00 64/900 77", 64, 1.0),
        ("99.0 9.00 9.00 9999/9999 77", 2, 1 / 16),
        ("of another system", 2, 1.0),
    ],
)
def test_the_weight_of_a_missed_heartbeat_follows_the_load(
    tmp_path: Path, load: str, cores: int, weight: float
) -> None:
    (tmp_path / "loadavg").write_text(load)

    assert lease.weight(tmp_path / "loadavg", cores) == weight
    assert lease.weight(tmp_path / "none", cores) == 1.0


def test_node_sh_weighs_a_missed_heartbeat_by_the_same_numbers() -> None:
    libraries = "\n".join(path.read_text() for path in (CHECKOUT / "slurm" / "lib" / "node").glob("*.sh"))

    assert re.findall(r"readonly LEASE_TASKS_\w+=(\d+)", libraries) == [str(lease.TASKS_PER_CORE)]
    assert re.findall(r"weight > (\d+) \? weight : (\d+)", libraries) == [(str(int(100 * lease.MIN_WEIGHT)),) * 2]


def test_a_process_that_stays_stopped_is_named() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        child.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(ClusterLost, match=rf"The process sleep \(PID {child.pid} .* on n1 was stopped"):
                asyncio.run(asyncio.wait_for(process_tree.watch("n1", STALL_S), 5))
        finally:
            child.kill()


def test_a_script_that_stays_stopped_is_named_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "node.sh").write_text("while :; do sleep 0.1; done")
    with subprocess.Popen(["bash", tmp_path / "node.sh"]) as child:
        child.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(ClusterLost, match=rf"The process node\.sh \(PID {child.pid} .* on n1 was stopped"):
                asyncio.run(asyncio.wait_for(process_tree.watch("n1", STALL_S), 5))
        finally:
            child.kill()


def test_a_process_that_was_continued_is_not_reported() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        child.send_signal(signal.SIGSTOP)
        while child.pid not in process_tree.stopped():
            time.sleep(0.01)
        child.send_signal(signal.SIGCONT)
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(asyncio.wait_for(process_tree.watch("n1", STALL_S), STALL_S * 3))
        child.kill()


def test_a_process_that_is_stopped_for_less_than_the_patience_ends_nothing() -> None:
    async def scenario() -> None:
        watching = asyncio.ensure_future(process_tree.watch("n1", STALL_S))
        with subprocess.Popen(["sleep", "60"]) as child:
            for _ in range(2):
                child.send_signal(signal.SIGSTOP)
                await asyncio.sleep(STALL_S * 0.7)
                child.send_signal(signal.SIGCONT)
                await asyncio.sleep(BEAT_S * 2)
            assert not watching.done()
            child.kill()
        watching.cancel()

    asyncio.run(scenario())


def test_a_process_that_a_debugger_holds_is_not_stopped() -> None:
    """As under gdb: the kernel's state is `t`, tracing stop."""
    with subprocess.Popen(["sleep", "60"]) as child:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.ptrace(PTRACE_ATTACH, child.pid, None, None) == 0, os.strerror(ctypes.get_errno())
        os.waitpid(child.pid, 0)
        try:
            assert Path(f"/proc/{child.pid}/stat").read_text().split(") ")[1][0] == "t"
            with pytest.raises(asyncio.TimeoutError):
                asyncio.run(asyncio.wait_for(process_tree.watch("n1", STALL_S), STALL_S * 3))
        finally:
            libc.ptrace(PTRACE_DETACH, child.pid, None, None)
            child.kill()


def cgroup(root: Path, files: dict[str, str], own: str) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "own").write_text(own)
    return root / "own"


@pytest.mark.parametrize(
    ("files", "own"),
    [
        ({"memory.events": "low 0\noom 3\noom_kill 2\n"}, "0::/\n"),
        ({"a/b/memory.events": "oom_kill 2\n", "memory.events": "oom_kill 9\n"}, "0::/a/b\n"),
        ({"memory/memory.oom_control": "oom_kill_disable 0\noom_kill 2\n"}, "5:cpu:/x\n4:memory:/docker/1\n"),
    ],
    ids=["version 2", "version 2 without a namespace", "version 1 in a container"],
)
def test_processes_killed_for_memory_are_reported(tmp_path: Path, files: dict[str, str], own: str) -> None:
    events = cgroup_events.read(3 << 30, root=tmp_path, own=cgroup(tmp_path, files, own))

    assert events.text == (
        "The kernel killed 2 processes on this node for lack of memory; the job has 3.0 GiB (sbatch --mem)."
    )
    assert events.failure_class == "memory"


def test_a_refused_fork_is_reported(tmp_path: Path) -> None:
    own = cgroup(tmp_path, {"pids/pids.events": "max 7\n", "memory/memory.oom_control": "oom_kill 0\n"}, "4:pids:/\n")

    events = cgroup_events.read(None, root=tmp_path, own=own)
    assert "limit of processes" in events.text
    assert events.failure_class == "slurm-container"
    assert cgroup_events.read(None, root=tmp_path / "none", own=own) == cgroup_events.KernelEvents()


def test_a_name_of_this_machine_is_distinguished_from_an_address() -> None:
    assert leads_here("localhost") in {"127.0.0.1", "::1"}
    assert leads_here("127.0.0.1") == ""
    assert leads_here("192.0.2.1") == ""


# A process named as verl's vLLM server, and its child as an engine; a line of its input has it make another engine.
SERVER = """\
import ctypes, os, sys, time
name = lambda text: ctypes.CDLL(None).prctl(15, text, 0, 0, 0)
name(b"ray::vLLMHttpServer.generate")
while True:
    engine = os.fork()
    if not engine:
        name(b"VLLM::EngineCore_DP0")
        time.sleep(60)
    print(engine, flush=True)
    sys.stdin.readline() or sys.exit()
"""


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        for pid in process_tree.below(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.kill()


def engine_of(server: subprocess.Popen[str]) -> int:
    """Return the pid of the engine that the server has just made."""
    assert server.stdout
    pid = int(server.stdout.readline())
    while Path(f"/proc/{pid}/comm").read_text() != "VLLM::EngineCor\n":
        time.sleep(0.01)
    return pid


def watched(seconds: float, act: Callable[[], None]) -> None:
    """Watch this process's tree for some seconds, and act after a few polls. Raises what the watch does."""

    async def scenario() -> None:
        watching = asyncio.ensure_future(process_tree.watch("n1", 60))
        await asyncio.sleep(BEAT_S * 3)
        act()
        await asyncio.wait_for(watching, seconds)

    asyncio.run(scenario())


def test_the_end_of_an_engine_that_the_training_does_not_notice_is_reported(server: subprocess.Popen[str]) -> None:
    engine = engine_of(server)

    with pytest.raises(ClusterLost, match=rf"vLLM server with the PID {server.pid} on n1 ended") as raised:
        watched(5, lambda: os.kill(engine, signal.SIGKILL))
    assert raised.value.failure_class == "vllm"


def test_an_engine_that_is_replaced_ends_nothing(server: subprocess.Popen[str]) -> None:
    engine = engine_of(server)

    def replace() -> None:
        assert server.stdin
        os.kill(engine, signal.SIGKILL)
        server.stdin.write("\n")
        server.stdin.flush()
        engine_of(server)

    with pytest.raises(asyncio.TimeoutError):
        watched(BEAT_S * 12, replace)


def test_a_server_that_ends_with_its_engine_ends_nothing(server: subprocess.Popen[str]) -> None:
    engine = engine_of(server)

    def end() -> None:
        server.kill()
        os.kill(engine, signal.SIGKILL)

    with pytest.raises(asyncio.TimeoutError):
        watched(BEAT_S * 12, end)
