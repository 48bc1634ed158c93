"""`sbatch slurm/launch.sh cluster`: a Ray cluster that stays, and takes the jobs that its output says how to submit."""

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
    """A cluster of two nodes that has said how to use it."""
    launch = submit(cluster, ["cluster"], environment=environment)
    launch.wait_for("ray job submit", 180)
    yield launch
    launch.cancel()
    launch.wait(60)


def in_container(standing: Launch, argv: list[str]) -> Output:
    """A command beside the head's Ray, as the account, as somebody with a shell there would type it."""
    docker = ["docker", "ps", "--quiet", "--filter", f"label=verljob.job={standing.id}"]
    container = standing.cluster.host("n1").run(docker).stdout.strip()
    return standing.cluster.host("n1").run(["docker", "exec", container, *argv], user="submitter", check=False)


def test_main_ppo_is_submitted_by_the_printed_line_and_seen_by_ray_job(standing: Launch) -> None:
    line = re.search(r"^submit +(ray job submit .*main_ppo.*?)(?: …)?$", standing.output(), re.MULTILINE)
    assert line, standing.last_words()
    words = shlex.split(line[1])
    address = next(word for word in words if word.startswith("--address="))

    submitted = in_container(standing, [*words, "--help"])

    assert submitted.code == 0, submitted.stdout + submitted.stderr
    job = re.search(r"raysubmit_\w+", submitted.stdout)
    assert job, submitted.stdout

    def seen(verb: list[str]) -> str:
        output = in_container(standing, ["ray", "job", *verb, address])
        return output.stdout + output.stderr

    assert job[0] in seen(["list"])
    wait_until(lambda: "succeeded" in seen(["status", job[0]]), 120, "end of the submitted job")
    assert "powered by Hydra" in seen(["logs", job[0]])


def test_ray_status_counts_both_nodes(standing: Launch) -> None:
    def seen() -> str:  # by the autoscaler, which looks every few seconds
        return in_container(standing, ["ray", "status"]).stdout

    wait_until(lambda: seen().count("node_") == 2, 30, "both nodes in `ray status`", seen)


def test_the_output_has_the_ssh_line_for_the_dashboard(standing: Launch) -> None:
    assert re.search(r"^dashboard +ssh -N -L \d+:\S+:\d+ ", standing.output(), re.MULTILINE)


def test_runtime_env_does_not_force_a_single_connection(standing: Launch) -> None:
    shipped = in_container(standing, ["cat", "/opt/verljob/runtime_env.yaml"]).stdout

    assert "env_vars" in shipped
    assert not re.search(r"^\s*CUDA_DEVICE_MAX_CONNECTIONS", shipped, re.MULTILINE)
