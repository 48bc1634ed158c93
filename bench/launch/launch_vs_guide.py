"""Seconds from sbatch to a checked cluster, against the guides' launch and other ways, in turns.

    .venv/bin/python bench/launch/launch_vs_guide.py --nodes 2 --launches 5 [--floor]
                                                     [--against guide symmetric minimum]

All launch the same image, already on the nodes of a rehearsal cluster, in turns. A launch is complete when its
own check saw every node; `minimum` is timed without one, and counted afterwards. Prints a line a launch and, last, the
ratio of the medians over complete launches. With `--floor` a cluster is made by hand in every turn (floor.py),
and the last line is the ratio to what Ray itself takes; `--against` without a name leaves the others out.
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

from bench.launch.floor import ByHand, by_hand, verdict
from slurm.errors import CommandFailed
from slurm.testbed.cluster import Cluster

LAUNCH_TIMEOUT_S = 300
FLAGS = ["--ntasks-per-node=1", "--cpus-per-task=4", "--gpus-per-node=1", "--mem=8G"]


@dataclass(frozen=True)
class Launch:
    """How long one launch took, in seconds, and how many nodes its check saw."""

    seconds: float
    nodes: int


Way = Callable[[Cluster, str, int], Launch]


def ours(cluster: Cluster, image: str, nodes: int) -> Launch:
    """`sbatch slurm/launch.sh cluster`, until the head's event that an actor has run on every node."""
    begin = time.time()
    job = cluster.sbatch(
        [f"--nodes={nodes}", *FLAGS, "slurm/launch.sh", "cluster"],
        environment={"VERLJOB_IMAGE": image, "VERLJOB_PLATFORM": "cpu"},
    )
    events = f"/home/submitter/verljob/verljob/{job}/attempt-1/events.jsonl"

    def passed() -> Launch | None:
        seen = cluster.host("login").run(["cat", events], check=False).stdout
        checks = [event for event in map(json.loads, seen.splitlines()) if event["phase"] == "cluster"]
        ran = [event for event in checks if event["message"].startswith("an actor ran at")]
        ended = [event["time"] for event in checks if event["event"] == "end"]
        return Launch(ended[0] - begin, len(ran)) if ended else None

    return _measure(cluster, job, passed)


def other(name: str, cluster: Cluster, image: str, nodes: int) -> Launch:
    """bench/NAME.sh, until the moment that it calls CHECKED."""
    begin = time.time()
    job = cluster.sbatch(
        [f"--nodes={nodes}", *FLAGS, f"--output={name}-%j.out", f"{name}.sh"], environment={"BENCH_IMAGE": image}
    )

    def checked() -> Launch | None:
        output = cluster.host("login").run(["cat", f"/home/submitter/verljob/{name}-{job}.out"], check=False).stdout
        checked_at = re.search(r"CHECKED ([\d.]+)", output)
        seen = re.search(r"NODES (\d+)", output)
        return Launch(float(checked_at[1]) - begin, int(seen[1])) if checked_at and seen else None

    return _measure(cluster, job, checked)


def _measure(cluster: Cluster, job: int, look: Callable[[], Launch | None]) -> Launch:
    deadline = time.monotonic() + LAUNCH_TIMEOUT_S
    launch = None
    while launch is None:
        if time.monotonic() > deadline or cluster.job(job).ended:
            return Launch(float("inf"), 0)
        launch = look()
        time.sleep(0.5)
    cluster.host("login").run(["scancel", str(job)])
    cluster.wait_job(job, timeout_s=60)
    cluster.wait_ready(timeout_s=60)
    for node in cluster.nodes:  # the guides leave their containers behind when they are cancelled
        cluster.host(node).run(["sh", "-c", "docker ps --quiet | xargs --no-run-if-empty docker kill"])
    return launch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
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
        scripts = [Path(__file__).with_name(f"{name}.sh") for name in ("by_hand", *options.against)]
        cluster.host("login").put(scripts, "/home/submitter/verljob", user="submitter")
        for node in cluster.nodes:
            cluster.host(node).run(["docker", "pull", "--quiet", image], timeout_s=900)
        ways: dict[str, Way] = {"launch.sh": ours, **{name: partial(other, name) for name in options.against}}
        report(ways, cluster, image, options.launches, options.floor)
    finally:
        cluster.down()


def report(ways: dict[str, Way], cluster: Cluster, image: str, launches: int, with_floor: bool) -> None:
    """Launch every way in turns, print a line for each, and the medians of those that were complete."""
    nodes = len(cluster.nodes)
    complete: dict[str, list[float]] = {name: [] for name in ways}
    floors: list[ByHand] = []
    for _ in range(launches):
        for name, start in ways.items():
            launch = start(cluster, image, nodes)
            print(f"{name}: {launch.seconds:.1f} s, {launch.nodes} of {nodes} nodes", flush=True)
            complete[name] += [launch.seconds] if launch.nodes == nodes else []
        floors += _floor(cluster, image) if with_floor else []
    medians = {name: statistics.median(seconds) for name, seconds in complete.items() if seconds}
    for name, seconds in complete.items():
        ratio = f", launch.sh takes {medians['launch.sh'] / medians[name]:.2f} of it" if len(seconds) else ""
        median = f"median {medians[name]:.1f} s" if seconds else "no median"
        print(f"{name}: {len(seconds)} of {launches} complete, {median}{ratio}")
    if floors and "launch.sh" in medians:
        print(verdict(medians["launch.sh"], floors, os.cpu_count() or 1))


def _floor(cluster: Cluster, image: str) -> list[ByHand]:
    """Make a cluster by hand, and return it if it was whole."""
    try:
        done = by_hand([cluster.host(node) for node in cluster.nodes], image)
    except CommandFailed as failed:
        said = (failed.output.splitlines() or ["(nothing)"])[-1]
        print(f"by hand: no cluster, a command ended with {failed.code}: {said}", flush=True)
        return []
    print(done, flush=True)
    return [done] if done.nodes == len(cluster.nodes) else []


if __name__ == "__main__":
    main()
