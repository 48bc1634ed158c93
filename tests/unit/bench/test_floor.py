"""bench/launch/floor.py makes a cluster by hand, measures Ray's time and CPU seconds, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from bench.launch.floor import TIMED, ByHand, Start, by_hand, verdict
from bench.launch.launch_vs_guide import Launch, report
from slurm.errors import CommandFailed
from slurm.testbed.cluster import Cluster
from slurm.testbed.hosts import Output

V1 = ("cpuacct/cpuacct.usage", "{}000000000\n")
V2 = ("cpu.stat", "usage_usec {}000000\nuser_usec 1\nsystem_usec 2\n")


class Machine:
    """Answers as a node does, notes what it was told, and fails where the words have ``fails`` in them."""

    def __init__(
        self, name: str, told: list[str], fails: str = "nothing", timed: str = "10.5 12.5 1000000 4001000000\n"
    ):
        self.name, self._told, self._fails, self._timed = name, told, fails, timed

    def run(self, argv: Sequence[str]) -> Output:
        words = " ".join(argv)
        self._told.append(f"{self.name}: {words}")
        if self._fails in words:
            raise CommandFailed(argv, 1, "starting\nthe raylet ended", where=self.name)
        answers = {"hostname": "172.18.0.4\n", "ray start": self._timed, "import ray": "a warning\n3\n"}
        return Output(0, next((answer for asked, answer in answers.items() if asked in words), ""), "")


class Nodes:
    """A cluster of such machines; the by-hand cluster of its first turns fails, one a ``failures``."""

    def __init__(self, failures: int = 0) -> None:
        self.nodes = ["n1", "n2", "n3"]
        self._failures = failures
        self.told: list[str] = []

    def host(self, name: str) -> Machine:
        turn = sum("n1: docker run" in line for line in self.told)
        return Machine(name, self.told, "--head" if turn < self._failures else "nothing")


def timed(folder: Path, cgroup: tuple[str, str], code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run TIMED around a `ray` that takes 0.2 s, and its container 3 CPU seconds."""
    file, line = folder / cgroup[0], cgroup[1]
    file.parent.mkdir(exist_ok=True)
    file.write_text(line.format(4))
    (folder / "after").write_text(line.format(7))
    ray = folder / "ray"
    ray.write_text(f"#!/bin/sh\necho started\nsleep 0.2\nmv '{folder}/after' '{file}'\nexit {code}\n")
    ray.chmod(0o755)
    argv = ["bash", "-euc", TIMED, "timed", str(folder), "ray", "start", "--head"]
    environ = {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("cgroup", [V1, V2], ids=["v1", "v2"])
def test_a_start_is_timed_and_its_containers_cpu_seconds_counted(tmp_path: Path, cgroup: tuple[str, str]) -> None:
    start = Start.parse(timed(tmp_path, cgroup).stdout)

    assert start.cpu_s == 3
    assert 0.2 <= start.wall_s < 5


def test_a_start_that_fails_is_not_timed(tmp_path: Path) -> None:
    done = timed(tmp_path, V1, code=3)

    assert (done.returncode, done.stdout) == (3, "")


def test_every_node_joins_the_head_one_after_the_other() -> None:
    told: list[str] = []
    done = by_hand([Machine(name, told) for name in ("n1", "n2", "n3")], "verl.cpu")

    starts = [line for line in told if "ray start" in line]
    assert [line.partition(": ")[0] for line in starts] == ["n1", "n2", "n3"]
    assert "ray start --head --node-ip-address=172.18.0.4 " in starts[0]
    assert all("ray start --address=172.18.0.4:6379 " in line for line in starts[1:])
    assert done == ByHand([Start(2, 4)] * 3, 3)
    assert (done.wall_s, done.cpu_s) == (4, 12)


@pytest.mark.parametrize(("fails", "answer"), [("--address", "1 2 3 4\n"), ("nothing", "1 2 ")], ids=["join", "answer"])
def test_a_cluster_that_does_not_come_about_is_told_and_removed(fails: str, answer: str) -> None:
    told: list[str] = []
    with pytest.raises(CommandFailed):
        by_hand([Machine(name, told, fails, answer) for name in ("n1", "n2")], "verl.cpu")

    removed = [line.partition(": ")[0] for line in told if "docker rm --force" in line]
    assert removed == ["n1", "n2"]


@pytest.mark.parametrize(
    ("cores", "floor"),
    [(2, "28.0 CPU s / 2 cores = 14.0 s, 9.0 s for one head and one join) = 14.0 s; launch.sh takes 18.2 s, 1.30 of"),
     (8, "28.0 CPU s / 8 cores = 3.5 s, 9.0 s for one head and one join) = 9.0 s; launch.sh takes 18.2 s, 2.02 of")],
)  # fmt: skip
def test_the_floor_is_what_the_cores_or_one_head_and_one_join_take(cores: int, floor: str) -> None:
    done = [ByHand([Start(6, 10 + more), Start(3, 6), Start(9, 6), Start(9, 6)], 4) for more in (0, 20, -5)]

    assert floor in verdict(18.2, done, cores)


def test_the_floor_is_taken_in_turns_and_what_is_not_whole_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    launches = [Launch(8, 3), Launch(99, 2), Launch(10, 3)]
    ways = {"launch.sh": lambda cluster, image, nodes: launches.pop(0)}
    report(ways, cast("Cluster", Nodes(failures=1)), "verl.cpu", 3, with_floor=True)

    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == ["launch.sh:", "by"] * 3 + ["launch.sh:", "floor"]
    assert said[1] == "by hand: no cluster, a command ended with 1: the raylet ended"
    assert said[3] == "by hand: head 2.0 s and 4.0 CPU s; joins 2.0 s and 4.0 CPU s, 2.0 s and 4.0 CPU s; 3 of 3 nodes"
    assert said[-1].startswith("floor of 2: ")
    assert "launch.sh takes 9.0 s" in said[-1]
