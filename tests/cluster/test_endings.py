"""Jobs that end early leave nothing on the nodes and name the cause; test_faults.py has the faults."""

from __future__ import annotations

import pytest

from slurm.testbed import Cluster
from tests.support.cluster.launches import Launch, leftovers, submit, wait_until

GONE_S = 30


@pytest.fixture
def running(cluster: Cluster, stub: str, environment: dict[str, str]) -> Launch:
    """A job in the middle of a training of ten minutes."""
    launch = submit(cluster, [stub, "stub.seconds=600"], environment=environment)
    launch.wait_for("stub training runs", 180)
    return launch


def test_scancel_during_training_leaves_nothing(running: Launch) -> None:
    running.cancel()

    wait_until(lambda: leftovers(running.cluster) == {}, GONE_S, "clean nodes", lambda: leftovers(running.cluster))
    assert running.wait(GONE_S).state == "CANCELLED"


def test_a_missing_node_fails_the_job_at_the_deadline_with_its_name(
    cluster: Cluster, stub: str, environment: dict[str, str]
) -> None:
    node = cluster.host("n2")
    node.run(["pkill", "-STOP", "dockerd"])
    try:
        launch = submit(cluster, [stub], environment={**environment, "VERLJOB_JOIN_TIMEOUT_S": "10"})
        job = launch.wait(120)
    finally:
        node.run(["pkill", "-CONT", "dockerd"])

    assert (job.state, job.code) == ("FAILED", 75), launch.end_of_output()
    assert "n2" in launch.result()["cause"]


def test_a_rollout_that_the_image_cannot_import_ends_the_job_with_66_before_the_first_step(
    cluster: Cluster, environment: dict[str, str]
) -> None:
    launch = submit(cluster, ["demo_cpu", "actor_rollout_ref.rollout.name=vllm"], environment=environment)
    job = launch.wait(240)

    result = launch.result()
    assert (job.state, job.code) == ("FAILED", 66), launch.end_of_output()
    assert (result["stage"], result["host"]) in {("rollout", "n1"), ("rollout", "n2")}
    assert "The rollout vllm needs the module vllm, which cannot be imported on n" in result["cause"]
    assert leftovers(cluster) == {}
