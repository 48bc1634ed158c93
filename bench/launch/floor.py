"""The floor of a launch on this machine: seconds and CPU seconds of Ray, started without Slurm.

Starts a container on every node, then `ray start --head`, then one join after the other, by `docker exec`. The head
and the first join give the seconds that one head and one join take on an idle machine, without the containers' start.
All of them give the CPU seconds, since all nodes of a rehearsal cluster share the same cores. A `ray start` is measured
from its first instruction until it returns, with all processes of its container; later work of the dashboard and the
agents is not included.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from slurm.errors import CommandFailed
from slurm.testbed.hosts import Output

NAME = "floor"
RESOURCES = ["--num-cpus", "4", "--num-gpus", "1"]  # as in guide.sh and minimum.sh
# Runs in the container, so that Docker's own time is not included. $1 is the container's cgroup, v1 or v2; nanoseconds.
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
    """Runs commands: slurm.testbed.Host."""

    def run(self, argv: Sequence[str]) -> Output:
        """Run ``argv`` and wait for its end. Raises CommandFailed."""


@dataclass(frozen=True)
class Start:
    """Seconds of one `ray start`, and the CPU seconds of its container in that time."""

    wall_s: float
    cpu_s: float

    @classmethod
    def parse(cls, line: str) -> Start:
        """Parse the output of TIMED."""
        began, ended, before, after = line.split()
        return cls(float(ended) - float(began), (int(after) - int(before)) / 1e9)


@dataclass(frozen=True)
class PlainCluster:
    """A Ray cluster that was started without Slurm: the starts of the head and of each worker, and Ray's node count."""

    starts: Sequence[Start]
    nodes: int

    @property
    def wall_s(self) -> float:
        """Seconds of the head and of the first join."""
        return sum(start.wall_s for start in self.starts[:2])

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the head and of all joins."""
        return sum(start.cpu_s for start in self.starts)

    def __str__(self) -> str:
        head, *joins = (f"{start.wall_s:.1f} s and {start.cpu_s:.1f} CPU s" for start in self.starts)
        return f"floor: head {head}; joins {', '.join(joins)}; {self.nodes} of {len(self.starts)} nodes"


def measure(machines: Sequence[Machine], image: str) -> PlainCluster:
    """Start Ray on ``machines``, of which the first is the head, and remove it. Raises CommandFailed."""
    head, *workers = machines
    run = ["docker", "run", "--detach", "--network=host", "--shm-size=1G", "--name", NAME, "--entrypoint=tail", image]
    try:
        for machine in machines:
            machine.run([*run, "-f", "/dev/null"])
        address = _last_line(head, ["hostname", "--ip-address"])
        starts = [_start(head, ["--head", f"--node-ip-address={address}"])]
        starts += [_start(worker, [f"--address={address}:6379"]) for worker in workers]
        return PlainCluster(starts, int(_last_line(head, ["docker", "exec", NAME, "python3", "-c", COUNT])))
    finally:
        remove = f"docker ps --all --quiet --filter name=^{NAME}$ | xargs --no-run-if-empty docker rm --force"
        for machine in machines:
            machine.run(["bash", "-euo", "pipefail", "-c", remove])


def _start(machine: Machine, flags: Sequence[str]) -> Start:
    timed = ["docker", "exec", NAME, "bash", "-euc", TIMED, "timed", "/sys/fs/cgroup"]
    return Start.parse(_last_line(machine, [*timed, "ray", "start", *flags, *RESOURCES]))


def _last_line(machine: Machine, argv: Sequence[str]) -> str:
    """Return the last line of a command's output. Docker 20.10 may cut it off on a busy machine: that is an error."""
    output = machine.run(argv)
    if not output.stdout.endswith("\n"):
        raise CommandFailed(argv, output.code, f"output without an end of line: {output.stdout!r}")
    return output.stdout.splitlines()[-1]


def comparison(launch_s: float, clusters: Sequence[PlainCluster], cores: int) -> str:
    """Format the ratio of the launches' median to the floor, which is the median of ``clusters``."""
    wall_s = statistics.median(cluster.wall_s for cluster in clusters)
    cpu_s = statistics.median(cluster.cpu_s for cluster in clusters)
    floor_s = max(cpu_s / cores, wall_s)
    return (
        f"floor of {len(clusters)}: max({cpu_s:.1f} CPU s / {cores} cores = {cpu_s / cores:.1f} s, "
        f"{wall_s:.1f} s for one head and one join) = {floor_s:.1f} s; "
        f"launch.sh takes {launch_s:.1f} s, {launch_s / floor_s:.2f} of it"
    )
