"""Seconds from sbatch to a checked cluster, against the launch of the guides (bench/guide.sh), in the same minutes.

    .venv/bin/python bench/launch_vs_guide.py --nodes 2 --launches 5

Both launch the same image, already on the nodes of a rehearsal cluster, in turns. A launch is complete when its
own check saw every node. Prints a line a launch and, last, the ratio of the medians over complete launches.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from slurm.testbed.cluster import Cluster

LAUNCH_TIMEOUT_S = 300
FLAGS = ["--ntasks-per-node=1", "--cpus-per-task=4", "--gpus-per-node=1", "--mem=8G"]


@dataclass(frozen=True)
class Launch:
    """How long one launch took, in seconds, and how many nodes its check saw."""

    seconds: float
    nodes: int


def ours(cluster: Cluster, image: str, nodes: int) -> Launch:
    """`sbatch slurm/launch.sh cluster`, until the head's event that the cluster checks have passed."""
    begin = time.time()
    job = cluster.sbatch(
        [f"--nodes={nodes}", *FLAGS, "slurm/launch.sh", "cluster"],
        environment={"VERLJOB_IMAGE": image, "VERLJOB_PLATFORM": "cpu"},
    )
    events = f"/home/submitter/verljob/verljob/{job}/attempt-1/events.jsonl"

    def passed() -> Launch | None:
        seen = cluster.host("login").run(["cat", events], check=False).stdout
        for event in map(json.loads, seen.splitlines()):
            if event["phase"] == "cluster" and event["event"] == "end":
                found = re.search(r"(\d+) nodes?", event["message"])
                return Launch(event["time"] - begin, int(found[1]) if found else 0)
        return None

    return _measure(cluster, job, passed)


def guide(cluster: Cluster, image: str, nodes: int) -> Launch:
    """bench/guide.sh, until its check has listed the nodes."""
    begin = time.time()
    job = cluster.sbatch(
        [f"--nodes={nodes}", *FLAGS, "--output=guide-%j.out", "guide.sh"], environment={"BENCH_IMAGE": image}
    )

    def checked() -> Launch | None:
        output = cluster.host("login").run(["cat", f"/home/submitter/verljob/guide-{job}.out"], check=False).stdout
        checked_at = re.search(r"CHECKED ([\d.]+)", output)
        seen = re.search(r"NODES (\d+)", output)
        return Launch(float(checked_at[1]) - begin, int(seen[1]) if seen else 0) if checked_at else None

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
    parser.add_argument("--image", default="verl.cpu:latest")
    options = parser.parse_args()
    cluster = Cluster(options.nodes, name="bench")
    try:
        cluster.up("verljob-base:bookworm")
        image = cluster.push(options.image)
        cluster.sync_checkout()
        cluster.host("login").put([Path(__file__).with_name("guide.sh")], "/home/submitter/verljob", user="submitter")
        for node in cluster.nodes:
            cluster.host(node).run(["docker", "pull", "--quiet", image], timeout_s=900)
        _report(cluster, image, options.nodes, options.launches)
    finally:
        cluster.down()


def _report(cluster: Cluster, image: str, nodes: int, launches: int) -> None:
    complete: dict[str, list[float]] = {"launch.sh": [], "guide": []}
    for _ in range(launches):
        for name, start in (("launch.sh", ours), ("guide", guide)):
            launch = start(cluster, image, nodes)
            print(f"{name}: {launch.seconds:.1f} s, {launch.nodes} of {nodes} nodes", flush=True)
            complete[name] += [launch.seconds] if launch.nodes == nodes else []
    for name, seconds in complete.items():
        median = f"median {statistics.median(seconds):.1f} s" if seconds else "no median"
        print(f"{name}: {len(seconds)} of {launches} complete, {median}")
    if all(complete.values()):
        ours_s, guide_s = (statistics.median(seconds) for seconds in complete.values())
        print(f"ratio {ours_s / guide_s:.2f}")


if __name__ == "__main__":
    main()
