"""The quick faults: each ends the job in time, with its code and its cause, and leaves nothing on the nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm.testbed import Cluster
from tests.faults import outages
from tests.faults.chaos import drill_safely, format_outcome, make_runtime
from tests.faults.drill import DrillSetup
from tests.faults.injections import SUPERVISOR
from tests.faults.kinds import KINDS, SHORTEST, Kind
from tests.faults.neighbour import Neighbour
from tests.faults.scene import STARTS_S, WORKER, Scene

STEPS = 18
SLACK = 2.0  # for busy machines


@pytest.fixture(scope="module")
def setup(cluster: Cluster, environment: dict[str, str], stub: str) -> Iterator[DrillSetup]:
    """The cluster, with another account's Ray on every node."""
    neighbour = Neighbour(cluster, environment["VERLJOB_IMAGE"])
    neighbour.start(cluster.nodes)
    yield DrillSetup(cluster, make_runtime("docker", environment["VERLJOB_IMAGE"]), stub, neighbour, SHORTEST)
    neighbour.stop(cluster.nodes)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.quick], ids=lambda kind: kind.name)
def test_a_fault_ends_the_job_in_time_with_its_cause_and_leaves_nothing(kind: Kind, setup: DrillSetup) -> None:
    outcome = drill_safely(kind, setup, slack=SLACK)

    assert outcome.problems == [], format_outcome(outcome)


def test_short_outages_do_not_end_the_job(setup: DrillSetup) -> None:
    """With the default patience; `invoke dev.chaos` makes the long outages, while verl trains."""
    scene = Scene(setup.cluster, setup.runtime, setup.stub, overrides=[f"stub.steps={STEPS}"])
    scene.submit()
    scene.job.wait_for("stub training runs", STARTS_S)

    outages.connection_reset(scene, WORKER, 3)
    outages.stopped(SUPERVISOR)(scene, WORKER, 10)
    outages.connection_reset(scene, WORKER, 3)

    job = scene.job.wait(STARTS_S)
    assert (job.state, job.code) == ("COMPLETED", 0), scene.job.end_of_output()
    assert [row["step"] for row in scene.job.rows("metrics.jsonl")] == list(range(1, STEPS + 1))
    events = scene.job.read("events.jsonl").splitlines()
    assert len(events) == len(set(events))
    assert sum("control connection broke" in event for event in events) >= 2
