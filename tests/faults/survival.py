"""A training that goes through outages: it may not end before its last step, and no step may lack."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slurm.errors import SlurmError
from slurm.testbed import Cluster
from tests.faults import outage_setup
from tests.faults.drill import GOING
from tests.faults.outages import Outage
from tests.faults.scene import HEAD, Runtime, Scene
from tests.support.cluster.launches import Launch, wait_until

STARTS_S = 600
ENDS_S = 1800
STEP_S = 240
"""In which a training makes its next step after an outage: TCP may wait for as long again as it lasted."""
MORE_STEPS = 3
LIMIT_MINUTES = 600


@dataclass
class Survived:
    """What came of an outage: after how many seconds the training went on, and what is not as it has to be."""

    outage: Outage
    runtime: str
    node: str
    next_step_s: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass
class Trial:
    """One training of ``steps`` steps on both nodes, and what was done to it."""

    scene: Scene
    steps: int
    made: int = 0

    @classmethod
    def begin(cls, cluster: Cluster, runtime: Runtime, steps: int) -> Trial:
        """Submit it, with the worker's clock an hour ahead where there is one of its own, and wait for a step."""
        outage_setup.ready(cluster)
        outage_setup.set_clock(cluster, cluster.nodes[-1], 3600)
        recipe, words = _training(runtime, steps)
        flags = [f"--time={LIMIT_MINUTES}"]
        scene = Scene(cluster, runtime, recipe, flags=flags, words=words, folder=outage_setup.FOLDER)
        scene.environment.update(outage_setup.environment(runtime.name))
        scene.submit()
        trial = cls(scene, steps)
        wait_until(lambda: trial.step() > 0 or trial.over(), STARTS_S, "first step", scene.job.last_words)
        assert not trial.over(), f"the training did not start: {scene.job.last_words()}"
        return trial

    @property
    def job(self) -> Launch:
        return self.scene.job

    def step(self) -> int:
        """The last step that was logged on the head."""
        return max(self._steps(), default=0)

    def over(self) -> bool:
        return self.job.cluster.job(self.job.id).state not in ("PENDING", *GOING)

    def go_through(self, outage: Outage, node: str = "") -> Survived:
        """Make an outage, and wait until the training has made more steps since."""
        found = Survived(outage, self.scene.runtime.name, node or outage.nodes[0])
        self.made += 1
        try:
            outage.make(self.scene, found.node, outage.lasts_s)
        except (AssertionError, SlurmError) as error:
            found.problems += [f"it was not made, or not put right: {error}", f"the job said: {self.last_line()}"]
            return found
        before, began = self.step(), time.monotonic()

        def went_on() -> bool:
            return self.step() >= min(before + MORE_STEPS, self.steps) or self.over()

        try:
            wait_until(went_on, STEP_S, "step")
        except AssertionError:
            found.problems.append(f"no {MORE_STEPS} steps in {STEP_S} s after it, at step {before}")
        found.next_step_s = time.monotonic() - began
        if self.over() and self.step() < self.steps:
            found.problems.append(f"the job ended at step {self.step()}: {self.last_line()}")
        return found

    def finish(self) -> list[str]:
        """Wait for the end; return what is not as it has to be."""
        wait_until(self.over, ENDS_S, "end of the training", self.job.last_words)
        ended = self.job.cluster.job(self.job.id)
        problems = []
        if (ended.state, ended.code) != ("COMPLETED", 0):
            problems.append(f"the job is {ended.state} with {ended.code}: {self.last_line()}")
        if self._steps() != list(range(1, self.steps + 1)):
            problems.append(f"the steps are {self._steps()}, and not 1 to {self.steps}, each once")
        doubled = [line for line, count in Counter(self._lines("events.jsonl")).items() if count > 1]
        problems += [f"an event came twice: {line}" for line in doubled]
        return problems

    def last_line(self) -> str:
        return (self.job.output().strip().splitlines() or [""])[-1]

    def _steps(self) -> list[int]:
        return [row["step"] for row in self.job.rows("metrics.jsonl") if row["host"] == HEAD]

    def _lines(self, name: str) -> list[str]:
        return self.job.read(name, missing="").splitlines()


def _training(runtime: Runtime, steps: int) -> tuple[str, list[str]]:
    """Return recipe and overrides: verl's own training, where there is torch; the site of the runtime bare has none."""
    if runtime.name == "bare":
        return f"{outage_setup.FOLDER}/stub.yaml", [f"stub.steps={steps}"]
    lasting = ["trainer.total_epochs=100000", f"trainer.total_training_steps={steps}", "trainer.test_freq=-1"]
    return "demo_cpu", [*lasting, "trainer.save_freq=25", "trainer.max_actor_ckpt_to_keep=1"]


def run(
    cluster: Cluster, runtime: Runtime, outages: Sequence[Outage], *, steps: int, say: Callable[[Survived], None]
) -> list[str]:
    """Go through these outages in as few trainings as they need; return what went wrong with the trainings."""
    left, problems = list(outages), list[str]()
    while left:
        trial = Trial.begin(cluster, runtime, steps)
        while left and not trial.over() and trial.step() < steps - MORE_STEPS:
            found = trial.go_through(left.pop(0))
            say(found)
            problems += found.problems
        problems += trial.finish()
    return problems
