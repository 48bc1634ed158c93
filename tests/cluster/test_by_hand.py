"""Without Slurm: `node --head` on one machine and the line that it prints on another form the same cluster."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from slurm.testbed import Cluster
from tests.support.cluster.launches import wait_until

NAME = "by-hand"


@pytest.fixture
def machines(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    for node in cluster.nodes:
        cluster.host(node).run(["docker", "rm", "--force", NAME], check=False)


def start(cluster: Cluster, node: str, image: str, words: list[str]) -> None:
    argv = ["docker", "run", "--detach", "--name", NAME, "--network", "host", "--shm-size", "1g", image, "node", *words]
    cluster.host(node).run(argv, user="submitter")


def said(cluster: Cluster, node: str) -> str:
    output = cluster.host(node).run(["docker", "logs", NAME], check=False)
    return output.stdout + output.stderr


def test_two_machines_meet_by_the_printed_line(machines: Cluster, environment: dict[str, str]) -> None:
    image = environment["VERLJOB_IMAGE"]
    start(machines, "n1", image, ["--head", "--nodes", "2", "--gpus", "1"])
    wait_until(lambda: "node --join" in said(machines, "n1"), 30, "line to join", lambda: said(machines, "n1"))
    line = re.search(r"node (--join \S+)", said(machines, "n1"))
    assert line

    start(machines, "n2", image, [*shlex.split(line[1]), "--gpus", "1"])

    wait_until(lambda: "ready at" in said(machines, "n1"), 120, "whole cluster", lambda: said(machines, "n1"))
    status = ["docker", "exec", NAME, "ray", "status"]  # told by the autoscaler, which looks every few seconds
    wait_until(lambda: machines.host("n1").run(status).stdout.count("node_") == 2, 30, "both nodes in `ray status`")

    machines.host("n1").run(["docker", "kill", "--signal", "TERM", NAME])

    wait_until(lambda: "verdict:" in said(machines, "n2"), 30, "end of the other machine", lambda: said(machines, "n2"))


def test_one_machine_alone_is_a_cluster_that_stays(machines: Cluster, environment: dict[str, str]) -> None:
    start(machines, "n1", environment["VERLJOB_IMAGE"], [])

    wait_until(lambda: "ready at" in said(machines, "n1"), 120, "cluster of one", lambda: said(machines, "n1"))
    state = machines.host("n1").run(["docker", "inspect", "--format", "{{.State.Running}}", NAME])
    assert state.stdout.strip() == "true"
