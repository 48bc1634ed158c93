"""Seconds from sbatch to a checked cluster, against the guides' launch and other ways, in turns.

    .venv/bin/python bench/launch/launch_vs_guide.py --nodes 2 --launches 5 [--floor]
                                                     [--against guide symmetric minimum]

All ways launch the same image, which every node of a rehearsal cluster has pulled before. Every way prints or logs the
time of its check and the number of nodes that the check found; files are read after the job has ended. A launch is
complete if the check found every node; `minimum` prints its time before it counts. Prints a line for each launch, then
the ratio of the medians over complete launches. With `--floor` Ray is also started without Slurm in every turn
(floor.py), and the last line is the ratio to that; `--against` without a name leaves the other ways out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.launch import floor
from bench.launch.floor import PlainCluster
from slurm.errors import CommandFailed
from slurm.testbed.cluster import Cluster
from slurm.testbed.compose import wait_until

LAUNCH_TIMEOUT_S = 300
FLAGS = ["--ntasks-per-node=1", "--cpus-per-task=4", "--gpus-per-node=1", "--mem=8G"]
WORK = "/home/submitter/verljob"


@dataclass(frozen=True)
class Launch:
    """Seconds of a launch from sbatch to its check, and the number of nodes that the check found."""

    seconds: float
    nodes: int


FAILED = Launch(float("inf"), 0)
Way = Callable[[Cluster, str, int], Launch]


def launch_ours(cluster: Cluster, image: str, nodes: int) -> Launch:
    """Run `sbatch slurm/launch.sh cluster`, until the head's event that an actor has run on every node."""
    begin = time.time()
    job = cluster.sbatch(
        [f"--nodes={nodes}", *FLAGS, "slurm/launch.sh", "cluster"],
        environment={"VERLJOB_IMAGE": image, "VERLJOB_PLATFORM": "cpu"},
    )
    events = f"{WORK}/verljob/{job}/attempt-1/events.jsonl"
    return measure(cluster, job, lambda: parse_events(cluster.read(events), begin))


def launch_script(name: str, cluster: Cluster, image: str, nodes: int) -> Launch:
    """Run `sbatch bench/launch/NAME.sh`, until the time that it prints after CHECKED."""
    begin = time.time()
    job = cluster.sbatch(
        [f"--nodes={nodes}", *FLAGS, f"--output={name}-%j.out", f"{name}.sh"], environment={"BENCH_IMAGE": image}
    )
    return measure(cluster, job, lambda: parse_output(cluster.read(f"{WORK}/{name}-{job}.out"), begin))


def parse_events(text: str, begin: float) -> Launch | None:
    """Parse events.jsonl: the end of phase `cluster`, and its notes that an actor ran. None before the end.

    The last line may be incomplete while the job runs.
    """
    complete = text[: text.rfind("\n") + 1]
    checks = [event for event in map(json.loads, complete.splitlines()) if event["phase"] == "cluster"]
    actors = {match[1] for event in checks if (match := re.search(r" ran at (\S+)", event["message"]))}
    ends = [event["time"] for event in checks if event["event"] == "end"]
    return Launch(ends[0] - begin, len(actors)) if ends else None


def parse_output(text: str, begin: float) -> Launch | None:
    """Parse the output of guide.sh, symmetric.sh or minimum.sh. None before both of its lines."""
    checked = re.search(r"CHECKED ([\d.]+)\n", text)
    count = re.search(r"NODES (\d+)\n", text)
    return Launch(float(checked[1]) - begin, int(count[1])) if checked and count else None


def measure(cluster: Cluster, job: int, read: Callable[[], Launch | None]) -> Launch:
    """Wait for the launch's check or the job's end, cancel the job, and return what its files have after its end.

    A job may print its check and end between two polls, so they are read again.
    """
    wait_until(lambda: read() is not None or cluster.job(job).ended, LAUNCH_TIMEOUT_S)
    cluster.host("login").run(["scancel", str(job)], check=False)
    cluster.wait_job(job, timeout_s=60)
    launch = read()
    for node in cluster.nodes:  # a script that is cancelled leaves its containers
        cluster.host(node).run(["sh", "-c", "docker ps --quiet | xargs --no-run-if-empty docker kill"])
    cluster.wait_ready(timeout_s=60)
    return launch or FAILED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--against", nargs="*", default=["guide"], choices=["guide", "symmetric", "minimum"])
    parser.add_argument("--floor", action="store_true")
    parser.add_argument("--image", default="verl.cpu:latest")
    options = parser.parse_args()
    cluster = Cluster(options.nodes, name="bench")
    try:
        cluster.up("verljob-base:bookworm")
        image = cluster.push(options.image)
        cluster.sync_checkout()
        scripts = [Path(__file__).with_name(f"{name}.sh") for name in ("containers", *options.against)]
        cluster.host("login").put(scripts, WORK, user="submitter")
        for node in cluster.nodes:
            cluster.host(node).run(["docker", "pull", "--quiet", image], timeout_s=900)
        scripted: dict[str, Way] = {name: partial(launch_script, name) for name in options.against}
        compare({"launch.sh": launch_ours, **scripted}, cluster, image, options.launches, options.floor)
    finally:
        cluster.down()


def compare(ways: dict[str, Way], cluster: Cluster, image: str, launches: int, with_floor: bool) -> None:
    """Launch every way in turns; print a line for each launch, and the medians of the complete ones."""
    nodes = len(cluster.nodes)
    complete: dict[str, list[float]] = {name: [] for name in ways}
    floors: list[PlainCluster] = []
    for _ in range(launches):
        for name, start in ways.items():
            launch = start(cluster, image, nodes)
            print(f"{name}: {launch.seconds:.1f} s, {launch.nodes} of {nodes} nodes", flush=True)
            complete[name] += [launch.seconds] if launch.nodes == nodes else []
        floors += _measure_floor(cluster, image) if with_floor else []
    medians = {name: statistics.median(seconds) for name, seconds in complete.items() if seconds}
    for name, seconds in complete.items():
        comparable = name in medians and "launch.sh" in medians
        ratio = f", launch.sh takes {medians['launch.sh'] / medians[name]:.2f} of it" if comparable else ""
        median = f"median {medians[name]:.1f} s" if seconds else "no median"
        print(f"{name}: {len(seconds)} of {launches} complete, {median}{ratio}")
    if floors and "launch.sh" in medians:
        print(floor.comparison(medians["launch.sh"], floors, os.cpu_count() or 1))


def _measure_floor(cluster: Cluster, image: str) -> list[PlainCluster]:
    """Measure a start of Ray without Slurm; the list is empty if the cluster is incomplete."""
    try:
        plain = floor.measure([cluster.host(node) for node in cluster.nodes], image)
    except CommandFailed as failed:
        last_line = (failed.output.splitlines() or ["(no output)"])[-1]
        print(f"floor: no cluster, a command ended with {failed.code}: {last_line}", flush=True)
        return []
    print(plain, flush=True)
    return [plain] if plain.nodes == len(cluster.nodes) else []


if __name__ == "__main__":
    main()
