"""A cluster without Slurm: `node --head` on one machine, and the command that it prints on another."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from slurm.testbed import Cluster
from tests.support.cluster.launches import wait_until

NAME = "without-slurm"


@pytest.fixture
def machines(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    for node in cluster.nodes:
        cluster.host(node).run(["docker", "rm", "--force", NAME], check=False)


def start(cluster: Cluster, node: str, image: str, arguments: list[str]) -> None:
    argv = [
        "docker",
        "run",
        "--detach",
        "--name",
        NAME,
        "--network",
        "host",
        "--shm-size",
        "1g",
        image,
        "node",
        *arguments,
    ]
    cluster.host(node).run(argv, user="submitter")


def logs(cluster: Cluster, node: str) -> str:
    output = cluster.host(node).run(["docker", "logs", NAME], check=False)
    return output.stdout + output.stderr


def test_two_machines_form_a_cluster_with_the_printed_command(machines: Cluster, environment: dict[str, str]) -> None:
    image = environment["VERLJOB_IMAGE"]
    start(machines, "n1", image, ["--head", "--nodes", "2", "--gpus", "1"])
    wait_until(lambda: "node --join" in logs(machines, "n1"), 30, "command to join", lambda: logs(machines, "n1"))
    line = re.search(r"node (--join \S+)", logs(machines, "n1"))
    assert line

    start(machines, "n2", image, [*shlex.split(line[1]), "--gpus", "1"])

    wait_until(lambda: "ready at" in logs(machines, "n1"), 120, "complete cluster", lambda: logs(machines, "n1"))
    status = ["docker", "exec", NAME, "ray", "status"]  # of the autoscaler, which updates it every few seconds
    wait_until(lambda: machines.host("n1").run(status).stdout.count("node_") == 2, 30, "both nodes in `ray status`")

    machines.host("n1").run(["docker", "kill", "--signal", "TERM", NAME])

    wait_until(
        lambda: "verdict:" in logs(machines, "n2"), 30, "verdict of the other machine", lambda: logs(machines, "n2")
    )


def test_one_machine_is_a_cluster_that_stays(machines: Cluster, environment: dict[str, str]) -> None:
    start(machines, "n1", environment["VERLJOB_IMAGE"], [])

    wait_until(lambda: "ready at" in logs(machines, "n1"), 120, "cluster of one", lambda: logs(machines, "n1"))
    state = machines.host("n1").run(["docker", "inspect", "--format", "{{.State.Running}}", NAME])
    assert state.stdout.strip() == "true"
