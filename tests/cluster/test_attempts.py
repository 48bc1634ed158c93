"""A training that hangs is found out; one that is preempted goes on where it had saved."""

from __future__ import annotations

import pytest

from slurm.testbed import Cluster
from tests.cluster.launches import Launch, submit, wait_until

TRAINING_S = 600
REQUEUED = ("--nodes=2", "--gpus-per-node=1", "--requeue")


def saved(launch: Launch) -> int:
    """The step that an attempt noted as saved and whole, 0 for none."""
    return int(launch.read("checkpoint", missing="0"))


@pytest.fixture(scope="module")
def preempted(cluster: Cluster, environment: dict[str, str]) -> Launch:
    """A training that was told, after its first checkpoint, that its time is nearly over, and was started again."""
    words = ["demo_cpu", "trainer.save_freq=1", "trainer.total_training_steps=4", "trainer.test_freq=-1"]
    launch = submit(cluster, words, flags=REQUEUED, environment=environment)
    wait_until(lambda: saved(launch) > 0, TRAINING_S, "checkpoint", launch.output)
    login = cluster.host("login")
    login.run(["scancel", "--batch", "--signal=USR1", str(launch.id)])
    wait_until(lambda: cluster.job(launch.id).state == "PENDING", TRAINING_S, "requeue", launch.output)
    login.run(["scontrol", "update", f"JobId={launch.id}", "StartTime=now"])  # Slurm would hold it for two minutes
    launch.wait(TRAINING_S)
    return launch


def test_a_preempted_training_ends_at_its_next_checkpoint_and_says_why(preempted: Launch) -> None:
    result = preempted.result()

    assert (result["code"], result["stage"], result["attempt"]) == (76, "lead", 1), preempted.output()
    assert f"at the checkpoint of step {saved(preempted)}" in result["cause"]


def test_the_next_attempt_goes_on_where_the_last_one_saved_and_completes(preempted: Launch) -> None:
    second = preempted.of_attempt(2)
    job = preempted.cluster.job(preempted.id)
    steps = [row["step"] for row in second.rows("metrics.jsonl")]

    assert (job.state, job.code) == ("COMPLETED", 0), preempted.output()
    assert steps == list(range(saved(preempted) + 1, 5))
    assert second.result()["attempt"] == 2


def test_both_attempts_speak_in_one_output(preempted: Launch) -> None:
    verdicts = [line for line in preempted.output().splitlines() if line.startswith("verdict: ")]

    assert [line.split()[1] for line in verdicts] == ["76", "0"]


def test_a_training_that_hangs_is_ended_with_the_stacks_of_every_node(
    cluster: Cluster, stub: str, environment: dict[str, str]
) -> None:
    limits = {"VERLJOB_HANG": "end", "VERLJOB_HANG_MARGIN_S": "3"}
    launch = submit(cluster, [stub, "stub.steps=3", "stub.seconds=600"], environment={**environment, **limits})

    job = launch.wait(240)

    assert (job.state, job.code) == ("FAILED", 76), launch.output()
    assert launch.result()["stage"] == "hang"
    assert "stub_training.py" in launch.read("nodes/0-n1/stacks-1.txt")
    assert "Thread" in launch.read("nodes/1-n2/stacks-1.txt")
