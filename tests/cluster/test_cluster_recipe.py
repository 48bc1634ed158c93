"""`sbatch slurm/launch.sh cluster`: a Ray cluster that stays, and whose output has the command to submit jobs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from slurm.testbed import Cluster
from slurm.testbed.hosts import Output
from tests.support.cluster.launches import Launch, submit, wait_until


@pytest.fixture(scope="module")
def standing(cluster: Cluster, environment: dict[str, str]) -> Iterator[Launch]:
    """A cluster of two nodes whose output has the command to submit jobs."""
    launch = submit(cluster, ["cluster"], environment=environment)
    launch.wait_for("ray job submit", 180)
    yield launch
    launch.cancel()
    launch.wait(60)


def in_container(standing: Launch, argv: list[str]) -> Output:
    """Run a command in the head's container, as the account."""
    docker = ["docker", "ps", "--quiet", "--filter", f"label=verljob.job={standing.id}"]
    container = standing.cluster.host("n1").run(docker).stdout.strip()
    return standing.cluster.host("n1").run(["docker", "exec", container, *argv], user="submitter", check=False)


def test_the_printed_command_submits_main_ppo_and_ray_job_lists_it(standing: Launch) -> None:
    line = re.search(r"^submit +(ray job submit .*main_ppo.*?)(?: …)?$", standing.output(), re.MULTILINE)
    assert line, standing.end_of_output()
    argv = shlex.split(line[1])
    address = next(argument for argument in argv if argument.startswith("--address="))

    submitted = in_container(standing, [*argv, "--help"])

    assert submitted.code == 0, submitted.stdout + submitted.stderr
    job = re.search(r"raysubmit_\w+", submitted.stdout)
    assert job, submitted.stdout

    def ray_job(arguments: list[str]) -> str:
        output = in_container(standing, ["ray", "job", *arguments, address])
        return output.stdout + output.stderr

    assert job[0] in ray_job(["list"])
    wait_until(lambda: "succeeded" in ray_job(["status", job[0]]), 120, "end of the submitted job")
    assert "powered by Hydra" in ray_job(["logs", job[0]])


def test_ray_status_counts_both_nodes(standing: Launch) -> None:
    def ray_status() -> str:  # of the autoscaler, which updates it every few seconds
        return in_container(standing, ["ray", "status"]).stdout

    wait_until(lambda: ray_status().count("node_") == 2, 30, "both nodes in `ray status`", ray_status)


def test_the_output_has_the_ssh_line_for_the_dashboard(standing: Launch) -> None:
    assert re.search(r"^dashboard +ssh -N -L \d+:\S+:\d+ ", standing.output(), re.MULTILINE)


def test_runtime_env_does_not_force_a_single_connection(standing: Launch) -> None:
    shipped = in_container(standing, ["cat", "/opt/verljob/runtime_env.yaml"]).stdout

    assert "env_vars" in shipped
    assert not re.search(r"^\s*CUDA_DEVICE_MAX_CONNECTIONS", shipped, re.MULTILINE)
