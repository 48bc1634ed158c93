"""Seconds that the import of the rollout adds to a launch of demo_cpu.

    .venv/bin/python bench/launch/rollout_cost.py [--launches 5]

Launches the recipe on two nodes of a rehearsal cluster, in turns with verl.cpu:latest as it is and with the same image
whose import was taken out. A launch lasts from sbatch to the last event of the attempt. Prints a line a launch and,
last, the medians and their difference. It takes two cores and 12 GiB.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from images.engine import base_image, client
from slurm.testbed import Cluster
from tests.support.cluster import cluster_setup
from tests.support.cluster.launches import submit

IMAGE, WITHOUT = "verl.cpu:latest", "verl.cpu:no-rollout-import"
MODULE = "/opt/verljob/python/verl_node/rollout.py"
# The import has nothing to do: what it waits for comes, and it names no rollout.
DOCKERFILE = f"""FROM {IMAGE}
USER root
RUN sed -i 's/self._words, self._env = list(words), env/self._words = []/' {MODULE} \\
 && grep -q 'self._words = \\[\\]$' {MODULE}
"""
LAUNCH_TIMEOUT_S = 600


def launch(cluster: Cluster, environment: dict[str, str]) -> float:
    """Return the seconds from sbatch to the last event; the job has to have ended well."""
    begin = time.time()
    job = submit(cluster, ["demo_cpu"], environment=environment)
    ended = job.wait(LAUNCH_TIMEOUT_S)
    assert (ended.state, ended.code) == ("COMPLETED", 0), job.last_words()
    return float(job.rows("events.jsonl")[-1]["time"]) - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=5, help="of each")
    options = parser.parse_args()
    os.environ["VERLJOB_DOCKER"] = docker = client.choose().client
    subprocess.run([docker, "build", "--quiet", "--tag", WITHOUT, "-"], input=DOCKERFILE, text=True, check=True)
    cluster = Cluster(2, name=f"{os.environ.get('VERLJOB_TESTBED') or 'verljob'}-rollout")
    cluster.up(base_image.ensure())
    try:
        cluster_setup.bring_checkout(cluster)
        sides = {
            name: cluster_setup.bring_image(cluster, image) for name, image in (("with", IMAGE), ("without", WITHOUT))
        }
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(-1, options.launches):  # the first of each warms the page cache and is not counted
            for name, environment in sides.items():
                took = launch(cluster, environment)
                print(f"{name:<8} {took:6.1f} s{'' if turn >= 0 else '  (not counted)'}", flush=True)
                if turn >= 0:
                    seconds[name].append(took)
    finally:
        cluster.down()
        subprocess.run([docker, "rmi", WITHOUT], check=True, stdout=subprocess.DEVNULL)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    added = medians["with"] - medians["without"]
    print(f"with {medians['with']:.1f} s, without {medians['without']:.1f} s: {added:+.1f} s")


if __name__ == "__main__":
    main()
