"""Training's end is the job's end, and what it made belongs to the account."""

from __future__ import annotations

import re

import pytest

from slurm.testbed import Cluster
from tests.cluster.launches import HOME, Launch, leftovers, submit

TRAINING_S = 900


@pytest.fixture(scope="module")
def training(cluster: Cluster, environment: dict[str, str]) -> Launch:
    """Two steps of verl's own main_ppo over two nodes, ended."""
    launch = submit(
        cluster,
        ["demo_cpu", "trainer.total_training_steps=2"],
        environment=environment,
        folder=HOME,
        script="slurm/launch.sh",
    )
    launch.wait(TRAINING_S)
    return launch


def test_a_training_that_succeeds_is_a_job_that_completes(training: Launch) -> None:
    job = training.cluster.job(training.id)

    assert (job.state, job.code) == ("COMPLETED", 0), training.output()
    assert training.result()["code"] == 0


def test_verl_trained_with_a_gradient_and_validated(training: Launch) -> None:
    steps = re.findall(r"step:(\d+) - .*?actor/grad_norm:([0-9.e+-]+)", training.output())

    assert {int(step) for step, _ in steps} == {1, 2}
    assert all(float(norm) > 0 for _, norm in steps)
    assert "val-core/" in training.output()


def test_both_hosts_trained_and_each_wrote_its_shard(training: Launch) -> None:
    shards = training.cluster.host("login").run(["find", f"{training.job_dir}/checkpoints", "-name", "model_*.pt"])
    ranks = {re.sub(r".*rank_(\d+)\.pt", r"\1", path) for path in shards.stdout.split()}
    hosts = set(re.findall(r"\(WorkerDict pid=\d+, ip=([0-9.]+)\)", training.output()))

    assert ranks == {"0", "1"}
    assert hosts, "no line of verl's workers names the second host"


def test_the_run_directory_tells_the_phases_and_the_metrics(training: Launch) -> None:
    phases = training.result()["phases"]
    rows = training.rows("metrics.jsonl")

    assert {"checks", "head", "join", "cluster", "data", "model", "train"} <= set(phases)
    assert [row["step"] for row in rows if "actor/grad_norm" in row["metrics"]] == [1, 2]
    assert all(row["phases"]["step"] > 0 for row in rows if "step" in row["phases"])


def test_the_first_lines_name_the_job_and_the_last_one_is_the_verdict(training: Launch) -> None:
    lines = training.output().strip().splitlines()
    first = "\n".join(lines[:12])

    assert all(word in first for word in ("n1 n2", training.run_dir, "ssh -N -L", "time limit"))
    assert lines[-1].startswith("verdict: 0")


def test_every_file_belongs_to_the_account(training: Launch) -> None:
    strangers = training.cluster.host("login").run(["find", "/home/submitter", "!", "-user", "submitter"])

    assert strangers.stdout == ""


def test_nothing_is_left_on_the_nodes(training: Launch) -> None:
    assert leftovers(training.cluster) == {}


def test_the_exit_code_of_a_training_that_fails_is_the_jobs(
    cluster: Cluster, stub: str, environment: dict[str, str]
) -> None:
    launch = submit(cluster, [stub, "stub.code=7"], environment=environment)

    job = launch.wait(180)

    assert (job.state, job.code) == ("FAILED", 7), launch.output()
    assert launch.result()["stage"] == "train"
    assert launch.output().strip().splitlines()[-1].startswith("verdict: 7")
