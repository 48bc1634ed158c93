"""A training that has to survive outages: it must reach its last step, with every step logged once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slurm.errors import SlurmError
from slurm.testbed import Cluster
from tests.faults import outage_setup
from tests.faults.drill import RUNNING
from tests.faults.outages import Outage
from tests.faults.scene import HEAD, Runtime, Scene
from tests.support.cluster.launches import Launch, wait_until

STARTS_S = 600
ENDS_S = 1800
STEP_S = 240
"""Limit for the next steps after an outage: TCP may wait for as long again as the outage lasted."""
MORE_STEPS = 3
LIMIT_MINUTES = 600


@dataclass
class Survival:
    """Outcome of an outage: seconds until the training made more steps, and problems."""

    outage: Outage
    runtime: str
    node: str
    next_step_s: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass
class Trial:
    """One training of ``steps`` steps on both nodes, in which outages are made."""

    scene: Scene
    steps: int

    @classmethod
    def begin(cls, cluster: Cluster, runtime: Runtime, steps: int) -> Trial:
        """Submit it, with the clock of the worker's container an hour ahead, and wait for its first step."""
        outage_setup.prepare_nodes(cluster)
        outage_setup.set_clock(cluster, cluster.nodes[-1], 3600)
        recipe, overrides = _training(runtime, steps)
        flags = [f"--time={LIMIT_MINUTES}"]
        scene = Scene(cluster, runtime, recipe, flags=flags, overrides=overrides, folder=outage_setup.FOLDER)
        scene.environment.update(outage_setup.environment(runtime.name))
        scene.submit()
        trial = cls(scene, steps)
        wait_until(lambda: trial.step() > 0 or trial.has_ended(), STARTS_S, "first step", scene.job.end_of_output)
        assert not trial.has_ended(), f"the training did not start: {scene.job.end_of_output()}"
        return trial

    @property
    def job(self) -> Launch:
        return self.scene.job

    def step(self) -> int:
        """Return the last step that the head has logged."""
        return max(self._steps(), default=0)

    def has_ended(self) -> bool:
        return self.job.cluster.job(self.job.id).state not in ("PENDING", *RUNNING)

    def survive(self, outage: Outage, node: str = "") -> Survival:
        """Make an outage, and wait until the training has made more steps since."""
        survived = Survival(outage, self.scene.runtime.name, node or outage.nodes[0])
        try:
            outage.make(self.scene, survived.node, outage.lasts_s)
        except (AssertionError, SlurmError) as error:
            survived.problems += [f"the outage was not made or not undone: {error}", f"the job: {self.last_line()}"]
            return survived
        before, began = self.step(), time.monotonic()

        def continues() -> bool:
            return self.step() >= min(before + MORE_STEPS, self.steps) or self.has_ended()

        try:
            wait_until(continues, STEP_S, "step")
        except AssertionError:
            survived.problems.append(f"no {MORE_STEPS} steps within {STEP_S} s after the outage, at step {before}")
        survived.next_step_s = time.monotonic() - began
        if self.has_ended() and self.step() < self.steps:
            survived.problems.append(f"the job ended at step {self.step()}: {self.last_line()}")
        return survived

    def finish(self) -> list[str]:
        """Wait for the end of the job; return a sentence for each problem."""
        wait_until(self.has_ended, ENDS_S, "end of the training", self.job.end_of_output)
        ended = self.job.cluster.job(self.job.id)
        problems = []
        if (ended.state, ended.code) != ("COMPLETED", 0):
            problems.append(f"the job is {ended.state} with exit code {ended.code}: {self.last_line()}")
        if self._steps() != list(range(1, self.steps + 1)):
            problems.append(f"the logged steps are {self._steps()}, expected 1 to {self.steps}, each once")
        duplicates = [line for line, count in Counter(self._lines("events.jsonl")).items() if count > 1]
        problems += [f"an event was logged twice: {line}" for line in duplicates]
        return problems

    def last_line(self) -> str:
        return (self.job.output().strip().splitlines() or [""])[-1]

    def _steps(self) -> list[int]:
        return [row["step"] for row in self.job.rows("metrics.jsonl") if row["host"] == HEAD]

    def _lines(self, name: str) -> list[str]:
        return self.job.read(name, missing="").splitlines()


def _training(runtime: Runtime, steps: int) -> tuple[str, list[str]]:
    """Return recipe and overrides: verl's own training, or with bare, whose environment has no torch, the stub."""
    if runtime.name == "bare":
        return f"{outage_setup.FOLDER}/stub.yaml", [f"stub.steps={steps}"]
    endless = ["trainer.total_epochs=100000", f"trainer.total_training_steps={steps}", "trainer.test_freq=-1"]
    return "demo_cpu", [*endless, "trainer.save_freq=25", "trainer.max_actor_ckpt_to_keep=1"]


def run(
    cluster: Cluster, runtime: Runtime, outages: Sequence[Outage], *, steps: int, report: Callable[[Survival], None]
) -> list[str]:
    """Make these outages in as few trainings as they need; return all problems."""
    left, problems = list(outages), list[str]()
    while left:
        trial = Trial.begin(cluster, runtime, steps)
        while left and not trial.has_ended() and trial.step() < steps - MORE_STEPS:
            survived = trial.survive(left.pop(0))
            report(survived)
            problems += survived.problems
        problems += trial.finish()
    return problems
