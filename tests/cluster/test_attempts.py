"""A training that hangs is found out; one that is preempted goes on where it had saved."""

from __future__ import annotations

import re

from slurm.testbed import Cluster
from tests.support.cluster.launches import STEPS, Launch, saved, submit


def test_a_preempted_training_ends_at_its_next_checkpoint_and_says_why(training: Launch) -> None:
    result = training.result()

    assert (result["code"], result["stage"], result["attempt"]) == (76, "lead", 1), training.last_words()
    assert f"at the checkpoint of step {saved(training)}" in result["cause"]


def test_the_next_attempt_goes_on_where_the_last_one_saved_and_completes(training: Launch) -> None:
    second = training.of_attempt(2)
    job = training.cluster.job(training.id)
    goes_on = re.search(r"training resumes from step (\d+): ", training.output())
    steps = [row["step"] for row in second.rows("metrics.jsonl")]

    assert (job.state, job.code) == ("COMPLETED", 0), training.last_words()
    assert goes_on, training.output()[:2000]
    assert saved(training) <= int(goes_on[1]) < STEPS
    assert steps == list(range(int(goes_on[1]) + 1, STEPS + 1))
    assert second.result()["attempt"] == 2


def test_both_attempts_speak_in_one_output(training: Launch) -> None:
    verdicts = [line for line in training.output().splitlines() if line.startswith("verdict: ")]

    assert [line.split()[1] for line in verdicts] == ["76", "0"], training.last_words()


def test_a_training_that_hangs_is_ended_with_the_stacks_of_every_node(
    cluster: Cluster, stub: str, environment: dict[str, str]
) -> None:
    limits = {"VERLJOB_HANG": "end", "VERLJOB_HANG_MARGIN_S": "3"}
    launch = submit(cluster, [stub, "stub.steps=3", "stub.seconds=600"], environment={**environment, **limits})

    job = launch.wait(240)

    assert (job.state, job.code) == ("FAILED", 76), launch.last_words()
    assert launch.result()["stage"] == "hang"
    assert "stub_training.py" in launch.read("nodes/0-n1/stacks-1.txt")
    assert "Thread" in launch.read("nodes/1-n2/stacks-1.txt")
