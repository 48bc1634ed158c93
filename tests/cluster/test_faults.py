"""The quick half of the faults: each ends the job soon, with its code and its cause, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm.testbed import Cluster
from tests.faults.chaos import attempt, row, runtime_of
from tests.faults.drill import Ground
from tests.faults.kinds import KINDS, SHORTEST, Kind
from tests.faults.neighbour import Neighbour

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
