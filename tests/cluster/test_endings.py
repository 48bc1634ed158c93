"""However a job ends, it ends soon, says why, and leaves nothing on the nodes; test_faults.py has the rest."""

from __future__ import annotations

import pytest

from slurm.testbed import Cluster
from tests.support.cluster.launches import Launch, leftovers, submit, wait_until

GONE_S = 30


@pytest.fixture
def running(cluster: Cluster, stub: str, environment: dict[str, str]) -> Launch:
    """A job in the middle of its training, which would last for ten minutes."""
    launch = submit(cluster, [stub, "stub.seconds=600"], environment=environment)
    launch.wait_for("stub training runs", 180)
    return launch


def test_scancel_in_the_middle_of_training_leaves_nothing(running: Launch) -> None:
    running.cancel()

    wait_until(lambda: leftovers(running.cluster) == {}, GONE_S, "clean nodes", lambda: leftovers(running.cluster))
    assert running.wait(GONE_S).state == "CANCELLED"


def test_a_missing_node_fails_the_job_at_its_deadline_and_is_named(
    cluster: Cluster, stub: str, environment: dict[str, str]
) -> None:
    node = cluster.host("n2")
    node.run(["pkill", "-STOP", "dockerd"])
    try:
        launch = submit(cluster, [stub], environment={**environment, "VERLJOB_JOIN_TIMEOUT_S": "20"})
        job = launch.wait(120)
    finally:
        node.run(["pkill", "-CONT", "dockerd"])

    assert (job.state, job.code) == ("FAILED", 75), launch.last_words()
    assert "n2" in launch.result()["cause"]


def test_a_rollout_that_this_image_cannot_import_ends_the_job_with_66_before_a_step(
    cluster: Cluster, environment: dict[str, str]
) -> None:
    launch = submit(cluster, ["demo_cpu", "actor_rollout_ref.rollout.name=vllm"], environment=environment)
    job = launch.wait(240)

    result = launch.result()
    assert (job.state, job.code) == ("FAILED", 66), launch.last_words()
    assert (result["stage"], result["host"]) in {("rollout", "n1"), ("rollout", "n2")}
    assert "The rollout vllm needs the module vllm, which cannot be imported on n" in result["cause"]
    assert leftovers(cluster) == {}
