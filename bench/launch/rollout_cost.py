"""Seconds that the import of the rollout adds to a launch of demo_cpu.

    .venv/bin/python bench/launch/rollout_cost.py [--launches 5]

Launches the recipe on two nodes of a rehearsal cluster, with verl.cpu:latest and with a copy of the image that skips
the import, in turns. A launch lasts from sbatch to the last event of the attempt. Prints a line for each launch, then
the medians and their difference. Needs two cores and 12 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from images.engine import base_image, client
from slurm.testbed import Cluster

IMAGE, WITHOUT = "verl.cpu:latest", "verl.cpu:no-rollout-import"
MODULE = "verl_node/training/rollout.py"
# The import begins as before and has nothing to do.
PATCH = """
_begin = RolloutImport.begin
RolloutImport.begin = lambda self, *_: _begin(self, [], {})
"""
DOCKERFILE = f"""FROM {IMAGE}
USER root
RUN printf '%s\\n' {" ".join(f"'{line}'" for line in PATCH.splitlines())} >> /opt/verljob/python/{MODULE}
"""
FLAGS = ("--nodes=2", "--gpus-per-node=1", "--ntasks-per-node=1", "--cpus-per-task=8", "--mem=16G", "--time=30")
LAUNCH_TIMEOUT_S = 600


def launch(cluster: Cluster, image: str) -> float:
    """Return the seconds from sbatch to the last event; exit if the job fails."""
    begin = time.time()
    number = cluster.sbatch([*FLAGS, "slurm/launch.sh", "demo_cpu"], environment={"VERLJOB_IMAGE": image})
    job = cluster.wait_job(number, timeout_s=LAUNCH_TIMEOUT_S)
    if (job.state, job.code) != ("COMPLETED", 0):
        raise SystemExit(f"job {number} is {job.state} with exit code {job.code}:\n{cluster.read(job.output)}")
    events = cluster.read(f"/home/submitter/verljob/verljob/{number}/attempt-1/events.jsonl").splitlines()
    return float(json.loads(events[-1])["time"]) - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=5, help="of each image")
    options = parser.parse_args()
    os.environ["VERLJOB_DOCKER"] = docker = client.choose().client
    subprocess.run([docker, "build", "--quiet", "--tag", WITHOUT, "-"], input=DOCKERFILE, text=True, check=True)
    cluster = Cluster(2, name=f"{os.environ.get('VERLJOB_TESTBED') or 'verljob'}-rollout")
    seconds: dict[str, list[float]] = {"with": [], "without": []}
    try:
        cluster.up(base_image.ensure())
        cluster.sync_checkout()
        images = {"with": cluster.push(IMAGE), "without": cluster.push(WITHOUT)}
        for turn in range(-1, options.launches):  # the first of each pulls the image and warms the page cache
            for name, image in images.items():
                took = launch(cluster, image)
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
