"""A preempted training continues from its checkpoint; a training that hangs is ended."""

from __future__ import annotations

import re

from slurm.testbed import Cluster
from tests.support.cluster.launches import STEPS, Launch, saved_step, submit


def test_a_preempted_training_shutdown_at_its_next_checkpoint_with_the_cause(training: Launch) -> None:
    result = training.result()

    assert (result["code"], result["stage"], result["attempt"]) == (76, "lead", 1), training.end_of_output()
    assert f"at the checkpoint of step {saved_step(training)}" in result["cause"]


def test_the_next_attempt_continues_from_the_checkpoint_and_completes(training: Launch) -> None:
    second = training.with_attempt(2)
    job = training.cluster.job(training.id)
    resumed = re.search(r"training resumes from step (\d+): ", training.output())
    steps = [row["step"] for row in second.rows("metrics.jsonl")]

    assert (job.state, job.code) == ("COMPLETED", 0), training.end_of_output()
    assert resumed, training.output()[:2000]
    assert saved_step(training) <= int(resumed[1]) < STEPS
    assert steps == list(range(int(resumed[1]) + 1, STEPS + 1))
    assert second.result()["attempt"] == 2


def test_one_output_has_the_verdicts_of_both_attempts(training: Launch) -> None:
    verdicts = [line for line in training.output().splitlines() if line.startswith("verdict: ")]

    assert [line.split()[1] for line in verdicts] == ["76", "0"], training.end_of_output()


def test_a_training_that_hangs_is_ended_with_the_stacks_of_every_node(
    cluster: Cluster, stub: str, environment: dict[str, str]
) -> None:
    limits = {"VERLJOB_HANG": "end", "VERLJOB_HANG_MARGIN_S": "3"}
    launch = submit(cluster, [stub, "stub.steps=3", "stub.seconds=600"], environment={**environment, **limits})

    job = launch.wait(240)

    assert (job.state, job.code) == ("FAILED", 76), launch.end_of_output()
    assert launch.result()["stage"] == "hang"
    assert "stub_training.py" in launch.read("nodes/0-n1/stacks-1.txt")
    assert "Thread" in launch.read("nodes/1-n2/stacks-1.txt")
