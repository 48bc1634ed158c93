"""The floor of a launch on this machine: Ray started by hand, its seconds and CPU seconds.

A container on every node, then `ray start --head`, then one join after the other, by exec and without Slurm. The head
and the first join give the seconds that one head and one join take while everything else is idle, containers not
counted. All of them give the CPU seconds, which all nodes of a rehearsal cluster take from the same cores. A
`ray start` is counted from its first instruction until it returns, with all processes of its container: what the
dashboard and the agents go on to do after that is not in it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from slurm.errors import CommandFailed
from slurm.testbed.hosts import Output

NAME = "byhand"
RESOURCES = ["--num-cpus", "4", "--num-gpus", "1"]  # as in guide.sh and minimum.sh
# Runs in the container: Docker's own time is not in it. The container's own cgroup is at $1, v1 or v2; nanoseconds.
TIMED = r"""cpu_ns() {
    if [[ -e $1/cpuacct/cpuacct.usage ]]; then
        cat "$1/cpuacct/cpuacct.usage"
    else
        sed -n 's/^usage_usec \(.*\)/\1000/p' "$1/cpu.stat"
    fi
}
cgroup=$1 && shift
before=$(cpu_ns "$cgroup")
began=$EPOCHREALTIME
"$@" >&2
ended=$EPOCHREALTIME
echo "$began $ended $before $(cpu_ns "$cgroup")" """
COUNT = 'import ray; ray.init(address="auto", logging_level="ERROR"); print(sum(node["Alive"] for node in ray.nodes()))'


class Machine(Protocol):
    """Where a command runs: slurm.testbed.Host."""

    def run(self, argv: Sequence[str]) -> Output:
        """Run ``argv`` and wait for its end; raises CommandFailed."""


@dataclass(frozen=True)
class Start:
    """One `ray start`: its seconds, and the CPU seconds of its container meanwhile."""

    wall_s: float
    cpu_s: float

    @classmethod
    def parse(cls, line: str) -> Start:
        """Read what TIMED prints."""
        began, ended, before, after = line.split()
        return cls(float(ended) - float(began), (int(after) - int(before)) / 1e9)


@dataclass(frozen=True)
class ByHand:
    """A cluster made by hand: the head's start, then every join's, and how many nodes Ray counted afterwards."""

    starts: Sequence[Start]
    nodes: int

    @property
    def wall_s(self) -> float:
        """The seconds of the head and of the first join."""
        return sum(start.wall_s for start in self.starts[:2])

    @property
    def cpu_s(self) -> float:
        """The CPU seconds of the head and of all joins."""
        return sum(start.cpu_s for start in self.starts)

    def __str__(self) -> str:
        head, *joins = (f"{start.wall_s:.1f} s and {start.cpu_s:.1f} CPU s" for start in self.starts)
        return f"by hand: head {head}; joins {', '.join(joins)}; {self.nodes} of {len(self.starts)} nodes"


def by_hand(machines: Sequence[Machine], image: str) -> ByHand:
    """Make a cluster of ``machines``, of which the first is the head, and remove it; raises CommandFailed."""
    head, *workers = machines
    run = ["docker", "run", "--detach", "--network=host", "--shm-size=1G", "--name", NAME, "--entrypoint=tail", image]
    try:
        for machine in machines:
            machine.run([*run, "-f", "/dev/null"])
        address = _answer(head, ["hostname", "--ip-address"])
        starts = [_start(head, ["--head", f"--node-ip-address={address}"])]
        starts += [_start(worker, [f"--address={address}:6379"]) for worker in workers]
        return ByHand(starts, int(_answer(head, ["docker", "exec", NAME, "python3", "-c", COUNT])))
    finally:
        mine = f"docker ps --all --quiet --filter name=^{NAME}$ | xargs --no-run-if-empty docker rm --force"
        for machine in machines:
            machine.run(["bash", "-euo", "pipefail", "-c", mine])


def _start(machine: Machine, words: Sequence[str]) -> Start:
    timed = ["docker", "exec", NAME, "bash", "-euc", TIMED, "timed", "/sys/fs/cgroup"]
    return Start.parse(_answer(machine, [*timed, "ray", "start", *words, *RESOURCES]))


def _answer(machine: Machine, argv: Sequence[str]) -> str:
    """Return the last line of what a command says. Docker 20.10 may cut it off on a busy machine: that is a failure."""
    output = machine.run(argv)
    if not output.stdout.endswith("\n"):
        raise CommandFailed(argv, output.code, f"an answer without its end: {output.stdout!r}")
    return output.stdout.splitlines()[-1]


def verdict(launch_s: float, done: Sequence[ByHand], cores: int) -> str:
    """Return the line that holds the median of the launches against the floor, which is made of medians too."""
    wall_s = statistics.median(one.wall_s for one in done)
    cpu_s = statistics.median(one.cpu_s for one in done)
    floor_s = max(cpu_s / cores, wall_s)
    return (
        f"floor of {len(done)}: max({cpu_s:.1f} CPU s / {cores} cores = {cpu_s / cores:.1f} s, "
        f"{wall_s:.1f} s for one head and one join) = {floor_s:.1f} s; "
        f"launch.sh takes {launch_s:.1f} s, {launch_s / floor_s:.2f} of it"
    )
