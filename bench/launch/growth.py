"""Scaling of a launch with the nodes: seconds, CPU seconds and messages to slurmctld, without Ray's own work.

    .venv/bin/python bench/launch/growth.py [--nodes 2 8 16 32] [--launches 3]
    .venv/bin/python bench/launch/growth.py --against guide --nodes 8
    python3 bench/launch/growth.py --root FOLDER  # without an engine, on a machine of more cores: root.py

Runs the real launch.sh, srun and node.sh on up to 32 slurmd on one machine, each with its own network, /tmp and
processes; a stand-in takes Ray's times (settings in standin_ray.py). A launch lasts from sbatch to the head's event
that the cluster is checked. All nodes share this machine's cores, while on a cluster each has its own; so the slope is
also given for the seconds minus the CPU seconds over the cores. Prints a line for each size, then the slopes; with
`--against guide` the ratio to the guides' procedure (bench/launch/guide.sh), in turns.
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
    """Return the slope of the linear fit, in seconds per node."""
    mean = statistics.mean(nodes)
    spread = sum((count - mean) ** 2 for count in nodes)
    return sum((count - mean) * value for count, value in zip(nodes, seconds)) / spread


def median(launches: Sequence[Launch]) -> Launch:
    """Return the launch with the median seconds."""
    return sorted(launches, key=lambda launch: launch.seconds)[len(launches) // 2]


def print_growth(crowd: Crowd, sizes: Sequence[int], launches: int) -> None:
    """Launch every size in turns, and print the figures."""
    done: dict[int, list[Launch]] = {size: [] for size in sizes}
    for _ in range(launches):
        for size in sizes:
            done[size].append(crowd.launch_ours(size))
            print(_format(size, done[size][-1]), flush=True)
    print("medians:")
    medians = [median(done[size]) for size in sizes]
    for size, launch in zip(sizes, medians):
        print(f"{_format(size, launch)}: {_format_rpcs(launch.rpcs)}")
    if len(sizes) > 1:
        seconds = slope(sizes, [launch.seconds for launch in medians])
        cpu_s = slope(sizes, [launch.cpu_s for launch in medians])
        rest = slope(sizes, [launch.seconds - launch.cpu_s / CORES for launch in medians])
        print(f"each node adds {seconds:.3f} s, {cpu_s:.3f} CPU seconds; without them over {CORES} cores {rest:.3f} s")


def print_ratio_to_guide(crowd: Crowd, sizes: Sequence[int], launches: int) -> None:
    """Launch every size and the guides' procedure in turns, and print the ratios of the medians."""
    for size in sizes:
        ours: list[float] = []
        guide: list[float] = []
        for _ in range(launches):
            ours.append(crowd.launch_ours(size).seconds)
            guide.append(crowd.launch_guide(size).seconds)
            print(f"{size} nodes: launch.sh {ours[-1]:.1f} s, guide {guide[-1]:.1f} s", flush=True)
        ours_s, guide_s = statistics.median(ours), statistics.median(guide)
        ratio = ours_s / guide_s
        print(f"{size} nodes: median {ours_s:.1f} s against {guide_s:.1f} s, launch.sh takes {ratio:.2f} of it")


def _format(size: int, launch: Launch) -> str:
    cpu = f"{launch.cpu_s:.1f} CPU seconds / {CORES} cores = {launch.cpu_s / CORES:.1f} s"
    return f"{size} nodes: {launch.seconds:.2f} s, {cpu}, {sum(launch.rpcs.values())} RPCs"


def _format_rpcs(rpcs: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(rpcs.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 8, 16, 32])
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--against", choices=["guide"])
    parser.add_argument(
        "--root", type=Path, help="folder with the files of bench/launch/host's image; no engine needed"
    )
    options = parser.parse_args()
    ray = {name: value for name, value in os.environ.items() if name.startswith("STANDIN_RAY_")}
    largest = max(options.nodes)
    machine: Machine = Root(largest, options.root) if options.root else Container(largest, "verljob-base:bookworm")
    try:
        crowd = Crowd(machine, largest, ray)
        crowd.wait_ready()
        crowd.launch_ours(largest)  # warms caches
        (print_ratio_to_guide if options.against else print_growth)(crowd, options.nodes, options.launches)
    finally:
        machine.down()


if __name__ == "__main__":
    main()
