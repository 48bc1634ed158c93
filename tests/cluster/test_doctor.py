"""`sbatch slurm/launch.sh doctor` runs only the checks on an allocation; a job excludes a node that failed them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from slurm.testbed import Cluster
from tests.support.cluster.launches import leftovers, submit, wait_until

DOCTOR_S = 180
BOTH_DEBUGGERS = {"RAY_DEBUG": "legacy", "RAY_DEBUG_POST_MORTEM": "1"}


@pytest.fixture
def without_default_routes(cluster: Cluster) -> Iterator[None]:
    """Nodes that reach each other only, like many compute nodes."""
    with ExitStack() as undo:
        for host in map(cluster.host, cluster.nodes):
            route = host.run(["ip", "route", "show", "default"]).stdout.split()
            host.run(["ip", "route", "del", "default"])
            undo.callback(host.run, ["ip", "route", "add", *route])
        yield


@pytest.mark.usefixtures("without_default_routes")
def test_doctor_checks_both_nodes_forms_a_cluster_and_leaves_nothing(
    cluster: Cluster, environment: dict[str, str]
) -> None:
    launch = submit(cluster, ["doctor"], environment=environment)
    job = launch.wait(DOCTOR_S)

    assert (job.state, job.code) == ("COMPLETED", 0), launch.end_of_output()
    checks = json.loads(launch.read("checks.json"))
    assert [node["host"] for node in checks["nodes"]] == ["n1", "n2"]
    names = [{outcome["check"] for outcome in node["outcomes"]} for node in checks["nodes"]]
    assert {"host.gpus_are_idle", "folders.home_is_writable", "network.head_port_is_open"} <= names[0] == names[1]
    assert "# " in launch.output()  # the reason of each variable
    assert "GLOO_SOCKET_IFNAME=eth0" in launch.output()
    wait_until(lambda: leftovers(cluster) == {}, 30, "clean nodes", lambda: leftovers(cluster))


def test_a_requeued_job_excludes_the_node_that_failed_its_checks(
    cluster: Cluster, stub: str, environment: dict[str, str]
) -> None:
    settings = {**environment, **BOTH_DEBUGGERS, "VERLJOB_EXCLUDE_BAD": "1"}
    launch = submit(cluster, [stub], flags=["--nodes=1", "--gpus-per-node=1", "--requeue"], environment=settings)
    wait_until(lambda: cluster.job(launch.id).state == "PENDING" and "verdict: 69" in launch.output(), DOCTOR_S,
               "requeue", launch.end_of_output)  # fmt: skip
    login = cluster.host("login")

    def excluded() -> bool:
        return "ExcNodeList=n" in login.run(["scontrol", "show", "job", str(launch.id)]).stdout

    wait_until(excluded, 15, "excluded node", launch.end_of_output)
    launch.cancel()
