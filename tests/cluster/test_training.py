"""The exit code of the training is the job's, and its files belong to the account."""

from __future__ import annotations

import json
import re

import pytest

from slurm.testbed import Cluster
from tests.support.cluster.launches import STEPS, Launch, leftovers, submit

PROJECT = "/home/project"


@pytest.fixture(scope="module")
def ended(training: Launch) -> Launch:
    """The attempt that completed."""
    return training.with_attempt(2)


def test_a_successful_training_completes_the_job(ended: Launch) -> None:
    job = ended.cluster.job(ended.id)

    assert (job.state, job.code) == ("COMPLETED", 0), ended.end_of_output()
    assert ended.result()["code"] == 0


def test_verl_trained_with_a_gradient_and_validated(ended: Launch) -> None:
    steps = re.findall(r"step:(\d+) - .*?actor/grad_norm:([0-9.e+-]+)", ended.output())

    assert {1, STEPS} <= {int(step) for step, _ in steps}
    assert all(float(norm) > 0 for _, norm in steps)
    assert "val-core/" in ended.output()


def test_both_hosts_trained_and_each_wrote_its_shard(ended: Launch) -> None:
    shards = ended.cluster.host("login").run(["find", f"{ended.job_dir}/checkpoints", "-name", "model_*.pt"])
    ranks = {re.sub(r".*rank_(\d+)\.pt", r"\1", path) for path in shards.stdout.split()}
    hosts = set(re.findall(r"\(WorkerDict pid=\d+, ip=([0-9.]+)\)", ended.output()))

    assert ranks == {"0", "1"}
    assert hosts, "no line of verl's workers names the second host"


def test_the_run_directory_has_phases_and_metrics(ended: Launch) -> None:
    phases = ended.result()["phases"]
    rows = ended.rows("metrics.jsonl")

    assert {"checks", "head", "join", "cluster", "data", "model", "train"} <= set(phases)
    assert [row["step"] for row in rows if "actor/grad_norm" in row["metrics"]] == [row["step"] for row in rows]
    assert rows[-1]["step"] == STEPS
    assert all(row["phases"]["step"] > 0 for row in rows if "step" in row["phases"])


def test_the_output_starts_with_the_job_and_ends_with_the_verdict(training: Launch) -> None:
    lines = training.output().strip().splitlines()
    first = "\n".join(lines[:12])

    assert all(text in first for text in ("n1 n2", training.run_dir, "ssh -N -L", "time limit"))
    assert lines[-1].startswith("verdict: 0")


def test_every_file_belongs_to_the_account(ended: Launch) -> None:
    foreign = ended.cluster.host("login").run(["find", "/home/submitter", "!", "-user", "submitter"])

    assert foreign.stdout == ""


def test_nothing_is_left_on_the_nodes(ended: Launch) -> None:
    assert leftovers(ended.cluster) == {}


@pytest.fixture(scope="module")
def failed(cluster: Cluster, stub: str, environment: dict[str, str]) -> Launch:
    """A job whose training exits with 7, and whose run directory is in a folder of the account's second group."""
    login = cluster.host("login")
    login.run(["install", "-d", "-o", "root", "-g", "project", "-m", "2770", PROJECT])
    settings = {**environment, "VERLJOB_RUN_DIR": f"{PROJECT}/run"}
    launch = submit(cluster, [stub, "stub.code=7"], environment=settings)
    launch.wait(180)
    return launch


def test_a_failed_training_shutdown_the_job_with_its_exit_code(failed: Launch) -> None:
    job = failed.cluster.job(failed.id)

    assert (job.state, job.code) == ("FAILED", 7), failed.end_of_output()
    assert json.loads(failed.read(f"{PROJECT}/run/result.json"))["stage"] == "train"
    assert failed.output().strip().splitlines()[-1].startswith("verdict: 7")


def test_a_job_can_write_to_a_folder_of_its_second_group(failed: Launch) -> None:
    owners = failed.cluster.host("login").run(["find", f"{PROJECT}/run", "-printf", "%u %g\n"]).stdout.split("\n")

    assert set(filter(None, owners)) == {"submitter project"}
