"""Scaling of a launch with the nodes: seconds, CPU seconds and messages to slurmctld, without Ray's own work.

    .venv/bin/python bench/launch/growth.py [--nodes 2 8 16 32] [--launches 3]
    .venv/bin/python bench/launch/growth.py --against guide --nodes 8
    python3 bench/launch/growth.py --root FOLDER  # without an engine, on a machine of more cores: root.py

Real launch.sh, srun and node.sh on up to 32 slurmd on one machine, each with a network, a /tmp and processes of its
own; a stand-in takes Ray's times (standin_ray.py has its settings). A launch lasts from sbatch to the event of
the head that the cluster is checked. All nodes share this machine's cores, and on a cluster each has its own: so the
line is also fitted to the seconds without the CPU seconds over the cores. Prints a line a size and, last, the slopes;
with `--against guide` the ratio to the guides' procedure (bench/launch/guide.sh), in turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.launch.container import Container
from bench.launch.crowd import Crowd, Launch, Machine
from bench.launch.root import Root

CORES = os.cpu_count() or 1


def slope(nodes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the seconds a node of the line that fits best."""
    middle = statistics.mean(nodes)
    spread = sum((count - middle) ** 2 for count in nodes)
    return sum((count - middle) * value for count, value in zip(nodes, seconds)) / spread


def median(launches: Sequence[Launch]) -> Launch:
    """Return the launch in the middle by its seconds, its RPCs included."""
    return sorted(launches, key=lambda launch: launch.seconds)[len(launches) // 2]


def growth(crowd: Crowd, sizes: Sequence[int], launches: int) -> None:
    """Launch every size in turns, and print the figures."""
    done: dict[int, list[Launch]] = {size: [] for size in sizes}
    for _ in range(launches):
        for size in sizes:
            done[size].append(crowd.ours(size))
            print(_told(size, done[size][-1]), flush=True)
    print("medians:")
    middle = [median(done[size]) for size in sizes]
    for size, launch in zip(sizes, middle):
        print(f"{_told(size, launch)}: {_types(launch.rpcs)}")
    if len(sizes) > 1:
        seconds = slope(sizes, [launch.seconds for launch in middle])
        cpu_s = slope(sizes, [launch.cpu_s for launch in middle])
        left = slope(sizes, [launch.seconds - launch.cpu_s / CORES for launch in middle])
        print(f"a node more: {seconds:.3f} s, {cpu_s:.3f} CPU seconds; without them over {CORES} cores {left:.3f} s")


def against_guide(crowd: Crowd, sizes: Sequence[int], launches: int) -> None:
    """Launch every size and the guides' procedure in turns, and print the ratios of the medians."""
    for size in sizes:
        ours: list[float] = []
        guide: list[float] = []
        for _ in range(launches):
            ours.append(crowd.ours(size).seconds)
            guide.append(crowd.guide(size).seconds)
            print(f"{size} nodes: launch.sh {ours[-1]:.1f} s, guide {guide[-1]:.1f} s", flush=True)
        a, b = statistics.median(ours), statistics.median(guide)
        print(f"{size} nodes: median {a:.1f} s against {b:.1f} s, launch.sh takes {a / b:.2f} of it")


def _told(size: int, launch: Launch) -> str:
    cpu = f"{launch.cpu_s:.1f} CPU seconds / {CORES} cores = {launch.cpu_s / CORES:.1f} s"
    return f"{size} nodes: {launch.seconds:.2f} s, {cpu}, {sum(launch.rpcs.values())} RPCs"


def _types(rpcs: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(rpcs.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 8, 16, 32])
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--against", choices=["guide"])
    parser.add_argument("--root", type=Path, help="the files of bench/launch/host's image, in place of an engine")
    options = parser.parse_args()
    ray = {name: value for name, value in os.environ.items() if name.startswith("STANDIN_RAY_")}
    most = max(options.nodes)
    machine: Machine = Root(most, options.root) if options.root else Container(most, "verljob-base:bookworm")
    try:
        crowd = Crowd(machine, most, ray)
        crowd.wait_ready()
        crowd.ours(most)  # the first finds cold caches
        (against_guide if options.against else growth)(crowd, options.nodes, options.launches)
    finally:
        machine.down()


if __name__ == "__main__":
    main()
