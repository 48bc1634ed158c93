"""bench/launch/floor.py starts Ray without Slurm, measures its seconds and CPU seconds, and removes its containers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from bench.launch.floor import TIMED, PlainCluster, Start, comparison, measure
from bench.launch.launch_vs_guide import Launch, compare
from slurm.errors import CommandFailed
from slurm.testbed.cluster import Cluster
from slurm.testbed.hosts import Output

V1 = ("cpuacct/cpuacct.usage", "{}000000000\n")
V2 = ("cpu.stat", "usage_usec {}000000\nuser_usec 1\nsystem_usec 2\n")


class Machine:
    """A node that records its commands, answers them, and fails those that contain ``fails``."""

    def __init__(
        self, name: str, commands: list[str], fails: str = "nothing", timed: str = "10.5 12.5 1000000 4001000000\n"
    ):
        self.name, self._commands, self._fails, self._timed = name, commands, fails, timed

    def run(self, argv: Sequence[str]) -> Output:
        command = " ".join(argv)
        self._commands.append(f"{self.name}: {command}")
        if self._fails in command:
            raise CommandFailed(argv, 1, "starting\nthe raylet ended", where=self.name)
        answers = {"hostname": "172.18.0.4\n", "ray start": self._timed, "import ray": "a warning\n3\n"}
        return Output(0, next((answer for part, answer in answers.items() if part in command), ""), "")


class Nodes:
    """A cluster of such machines, on which the first ``failures`` starts of a head fail."""

    def __init__(self, failures: int = 0) -> None:
        self.nodes = ["n1", "n2", "n3"]
        self._failures = failures
        self.commands: list[str] = []

    def host(self, name: str) -> Machine:
        turn = sum("n1: docker run" in line for line in self.commands)
        return Machine(name, self.commands, "--head" if turn < self._failures else "nothing")


def timed(folder: Path, cgroup: tuple[str, str], code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run TIMED with a `ray` that takes 0.2 s, in a container that uses 3 CPU seconds."""
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
def test_a_start_has_its_seconds_and_its_containers_cpu_seconds(tmp_path: Path, cgroup: tuple[str, str]) -> None:
    start = Start.parse(timed(tmp_path, cgroup).stdout)

    assert start.cpu_s == 3
    assert 0.2 <= start.wall_s < 5


def test_a_failed_start_has_no_time(tmp_path: Path) -> None:
    done = timed(tmp_path, V1, code=3)

    assert (done.returncode, done.stdout) == (3, "")


def test_workers_join_the_head_one_after_the_other() -> None:
    commands: list[str] = []
    cluster = measure([Machine(name, commands) for name in ("n1", "n2", "n3")], "verl.cpu")

    starts = [line for line in commands if "ray start" in line]
    assert [line.partition(": ")[0] for line in starts] == ["n1", "n2", "n3"]
    assert "ray start --head --node-ip-address=172.18.0.4 " in starts[0]
    assert all("ray start --address=172.18.0.4:6379 " in line for line in starts[1:])
    assert cluster == PlainCluster([Start(2, 4)] * 3, 3)
    assert (cluster.wall_s, cluster.cpu_s) == (4, 12)


@pytest.mark.parametrize(("fails", "answer"), [("--address", "1 2 3 4\n"), ("nothing", "1 2 ")], ids=["join", "answer"])
def test_a_failed_cluster_is_an_error_and_is_removed(fails: str, answer: str) -> None:
    commands: list[str] = []
    with pytest.raises(CommandFailed):
        measure([Machine(name, commands, fails, answer) for name in ("n1", "n2")], "verl.cpu")

    removed = [line.partition(": ")[0] for line in commands if "docker rm --force" in line]
    assert removed == ["n1", "n2"]


@pytest.mark.parametrize(
    ("cores", "floor"),
    [(2, "28.0 CPU s / 2 cores = 14.0 s, 9.0 s for one head and one join) = 14.0 s; launch.sh takes 18.2 s, 1.30 of"),
     (8, "28.0 CPU s / 8 cores = 3.5 s, 9.0 s for one head and one join) = 9.0 s; launch.sh takes 18.2 s, 2.02 of")],
)  # fmt: skip
def test_the_floor_is_the_larger_of_cpu_seconds_over_cores_and_head_with_one_join(cores: int, floor: str) -> None:
    clusters = [PlainCluster([Start(6, 10 + more), Start(3, 6), Start(9, 6), Start(9, 6)], 4) for more in (0, 20, -5)]

    assert floor in comparison(18.2, clusters, cores)


def test_the_floor_is_measured_in_turns_without_incomplete_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    launches = [Launch(8, 3), Launch(99, 2), Launch(10, 3)]
    ways = {"launch.sh": lambda cluster, image, nodes: launches.pop(0)}
    compare(ways, cast("Cluster", Nodes(failures=1)), "verl.cpu", 3, with_floor=True)

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["launch.sh:", "floor:"] * 3 + ["launch.sh:", "floor"]
    assert lines[1] == "floor: no cluster, a command ended with 1: the raylet ended"
    assert lines[3] == "floor: head 2.0 s and 4.0 CPU s; joins 2.0 s and 4.0 CPU s, 2.0 s and 4.0 CPU s; 3 of 3 nodes"
    assert lines[-1].startswith("floor of 2: ")
    assert "launch.sh takes 9.0 s" in lines[-1]
