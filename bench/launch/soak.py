"""Soak test: random outages while verl trains on a rehearsal cluster.

    .venv/bin/python bench/launch/soak.py [--hours 2] [--runtime docker] [--seed N]

Each of tests/faults/outages.py comes, lasts and goes again, one after another with a pause between, on a node by
chance; a training that reaches its last step is followed by another. Prints each, and one figure: how many outages were
made, and how many false ends or other problems came of them. It takes two cores, 12 GiB and the image verl.cpu:latest.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from images.engine import base_image, client
from slurm.testbed import Cluster
from tests.faults import chaos, outages, survival
from tests.faults.outages import Outage
from tests.support.cluster import cluster_setup

IMAGE = "verl.cpu:latest"
STEPS = {"docker": 300, "podman": 300, "bare": 3000}
PAUSE_S = (5.0, 40.0)


class Soak:
    """Trainings under outages by chance, until a time is over."""

    def __init__(self, cluster: Cluster, runtime: str, reference: str, seed: int) -> None:
        self.cluster, self.runtime = cluster, chaos.runtime_of(runtime, reference)
        self.steps = STEPS[runtime]
        self.made: Counter[str] = Counter()
        self.trainings = 0
        self.problems: list[str] = []
        self._chance = random.Random(seed)  # noqa: S311  no secret
        self._outages = chaos.to_survive("", runtime)

    def run(self, seconds: float) -> None:
        """Begin trainings until the time is over; the last one comes to its end without outages."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            trial = survival.Trial.begin(self.cluster, self.runtime, self.steps)
            self.trainings += 1
            while time.monotonic() < end and not trial.over() and trial.step() < self.steps - survival.MORE_STEPS:
                time.sleep(self._chance.uniform(*PAUSE_S))
                self._make(trial, self._chance.choice(self._outages))
            self.problems += trial.finish()

    def figure(self) -> str:
        kinds = ", ".join(f"{count} {name}" for name, count in sorted(self.made.items()))
        return (
            f"{sum(self.made.values())} outages ({kinds}) in {self.trainings} trainings of {self.steps} steps: "
            f"{len(self.problems)} false ends or other problems"
        )

    def _make(self, trial: survival.Trial, outage: Outage) -> None:
        survived = trial.go_through(outage, self._chance.choice(outage.nodes))
        self.made[outage.name] += 1
        self.problems += survived.problems
        say(f"{time.strftime('%H:%M:%S')} step {trial.step():>4} {chaos.survived_row(survived)}")


def say(line: str) -> None:
    print(line, flush=True)


@contextmanager
def rehearsal(runtime: str) -> Iterator[tuple[Cluster, str]]:
    """A cluster of two nodes, and what VERLJOB_IMAGE is there."""
    os.environ["VERLJOB_DOCKER"] = client.choose().client
    cluster = Cluster(2, name=f"{os.environ.get('VERLJOB_TESTBED') or 'verljob'}-soak")
    cluster.up(base_image.ensure())
    try:
        cluster_setup.bring_checkout(cluster)
        bring = {"podman": cluster_setup.bring_for_podman, "bare": cluster_setup.bring_for_bare}.get(runtime)
        yield cluster, bring(cluster, IMAGE) if bring else cluster_setup.bring_image(cluster, IMAGE)["VERLJOB_IMAGE"]
    finally:
        cluster.down()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--runtime", default="docker", choices=outages.ALL)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of what is chosen by chance")
    options = parser.parse_args()
    say(f"seed {options.seed}")
    with rehearsal(options.runtime) as (cluster, reference):
        soak = Soak(cluster, options.runtime, reference, options.seed)
        try:
            soak.run(options.hours * 3600)
        finally:
            say(soak.figure())
    for problem in soak.problems:
        say(f"    {problem}")
    return min(len(soak.problems), 1)


if __name__ == "__main__":
    sys.exit(main())
