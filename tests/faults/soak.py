"""`invoke dev.chaos --hours 2`: makes random outages while verl trains on a rehearsal cluster.

Each outage of outages.py starts, lasts and ends, one after another with a pause between, on a random node. A training
that reaches its last step is followed by another. Needs two cores and 12 GiB.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

from slurm.testbed import Cluster
from tests.faults import chaos, survival
from tests.faults.outages import Outage
from tests.faults.scene import Runtime
from tests.support.cluster import cluster_setup

STEPS = {"docker": 300, "podman": 300, "bare": 3000}
PAUSE_S = (5.0, 40.0)


class Soak:
    """Trainings with random outages until a deadline."""

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        outages: Sequence[Outage],
        seed: int,
        log_line: Callable[[str], None],
    ) -> None:
        self.cluster, self.runtime = cluster, runtime
        self.steps = STEPS[runtime.name]
        self.outage_counts: Counter[str] = Counter()
        self.trainings = 0
        self.problems: list[str] = []
        self._random = random.Random(seed)  # noqa: S311  no secret
        self._outages = outages
        self._log_line = log_line

    def run(self, seconds: float) -> None:
        """Start trainings until the deadline; the last one reaches its end without more outages."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            trial = survival.Trial.begin(self.cluster, self.runtime, self.steps)
            self.trainings += 1
            while time.monotonic() < end and not trial.has_ended() and trial.step() < self.steps - survival.MORE_STEPS:
                time.sleep(self._random.uniform(*PAUSE_S))
                self._make(trial, self._random.choice(self._outages))
            self.problems += trial.finish()

    def figure(self) -> str:
        kinds = ", ".join(f"{count} {name}" for name, count in sorted(self.outage_counts.items()))
        return (
            f"{sum(self.outage_counts.values())} outages ({kinds}) in {self.trainings} trainings of {self.steps} "
            f"steps: {len(self.problems)} false ends or other problems"
        )

    def _make(self, trial: survival.Trial, outage: Outage) -> None:
        survived = trial.survive(outage, self._random.choice(outage.nodes))
        self.outage_counts[outage.name] += 1
        self.problems += survived.problems
        self._log_line(f"{time.strftime('%H:%M:%S')} step {trial.step():>4} {chaos.format_survival(survived)}")


def run(
    image: str, base: str, *, hours: float, only: str, runtime: str, seed: int, log_line: Callable[[str], None]
) -> int:
    """Make random outages for ``hours``; return the number of problems. Raises SlurmError."""
    chaos.require_known(runtime)
    outages = chaos.select_outages(only, runtime)
    seed = seed or int(time.time())
    log_line(f"seed {seed}")
    with chaos.started_cluster(base, "soak") as cluster:
        cluster_setup.copy_checkout(cluster)
        reference = chaos.LOADERS[runtime](cluster, image)
        soak = Soak(cluster, chaos.make_runtime(runtime, reference), outages, seed, log_line)
        try:
            soak.run(hours * 3600)
        finally:
            log_line(soak.figure())
    for problem in soak.problems:
        log_line(f"    {problem}")
    return len(soak.problems)
