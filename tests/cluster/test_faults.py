"""The quick half of the faults: each ends the job soon, with its code and its cause, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm.testbed import Cluster
from tests.faults import outages
from tests.faults.chaos import attempt, row, runtime_of
from tests.faults.drill import Ground
from tests.faults.injections import SUPERVISOR
from tests.faults.kinds import KINDS, SHORTEST, Kind
from tests.faults.neighbour import Neighbour
from tests.faults.scene import STARTS_S, WORKER, Scene

STEPS = 30
SLACK = 2.0  # machines that run tests are busy


@pytest.fixture(scope="module")
def grounds(cluster: Cluster, environment: dict[str, str], stub: str) -> Iterator[Ground]:
    """The cluster, with another account's Ray on every node."""
    neighbour = Neighbour(cluster, environment["VERLJOB_IMAGE"])
    neighbour.move_in(cluster.nodes)
    yield Ground(cluster, runtime_of("docker", environment["VERLJOB_IMAGE"]), stub, neighbour, SHORTEST)
    neighbour.move_out(cluster.nodes)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.quick], ids=lambda kind: kind.name)
def test_a_fault_ends_the_job_soon_says_why_and_leaves_nothing(kind: Kind, grounds: Ground) -> None:
    outcome = attempt(kind, grounds, slack=SLACK)

    assert outcome.problems == [], row(outcome)


def test_what_comes_and_goes_again_ends_nothing(grounds: Ground) -> None:
    """With the patience of every job; the long outages are `invoke dev.chaos`'s, while verl trains."""
    scene = Scene(grounds.cluster, grounds.runtime, grounds.stub, words=[f"stub.steps={STEPS}"])
    scene.submit()
    scene.job.wait_for("stub training runs", STARTS_S)

    outages.connection_reset(scene, WORKER, 3)
    outages.stopped(SUPERVISOR)(scene, WORKER, 10)
    outages.connection_reset(scene, WORKER, 3)

    job = scene.job.wait(STARTS_S)
    assert (job.state, job.code) == ("COMPLETED", 0), scene.job.last_words()
    assert [row["step"] for row in scene.job.rows("metrics.jsonl")] == list(range(1, STEPS + 1))
    events = scene.job.read("events.jsonl").splitlines()
    assert len(events) == len(set(events))
    assert sum("control connection broke" in event for event in events) >= 2
