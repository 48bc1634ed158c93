"""`sbatch slurm/launch.sh doctor`: the checks alone, on an allocation; and a job that leaves an unfit node out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from slurm.testbed import Cluster
from tests.support.cluster.launches import leftovers, submit, wait_until

VISIT_S = 180
BOTH_DEBUGGERS = {"RAY_DEBUG": "legacy", "RAY_DEBUG_POST_MORTEM": "1"}


@pytest.fixture
def without_default_routes(cluster: Cluster) -> Iterator[None]:
    """The nodes reach each other and nothing else, as compute nodes often do."""
    with ExitStack() as undo:
        for host in map(cluster.host, cluster.nodes):
            way = host.run(["ip", "route", "show", "default"]).stdout.split()
            host.run(["ip", "route", "del", "default"])
            undo.callback(host.run, ["ip", "route", "add", *way])
        yield


@pytest.mark.usefixtures("without_default_routes")
def test_a_visit_checks_both_nodes_forms_a_cluster_and_leaves_nothing(
    cluster: Cluster, environment: dict[str, str]
) -> None:
    launch = submit(cluster, ["doctor"], environment=environment)
    job = launch.wait(VISIT_S)

    assert (job.state, job.code) == ("COMPLETED", 0), launch.last_words()
    told = json.loads(launch.read("checks.json"))
    assert [node["host"] for node in told["nodes"]] == ["n1", "n2"]
    asked = [{one["check"] for one in node["outcomes"]} for node in told["nodes"]]
    assert {"host.gpus_are_idle", "folders.home_is_writable", "network.head_port_is_open"} <= asked[0] == asked[1]
    assert "# " in launch.output()  # why which variable is set
    assert "GLOO_SOCKET_IFNAME=eth0" in launch.output()
    wait_until(lambda: leftovers(cluster) == {}, 30, "clean nodes", lambda: leftovers(cluster))


def test_a_job_on_an_unfit_node_waits_for_others(cluster: Cluster, stub: str, environment: dict[str, str]) -> None:
    wanted = {**environment, **BOTH_DEBUGGERS, "VERLJOB_EXCLUDE_BAD": "1"}
    launch = submit(cluster, [stub], flags=["--nodes=1", "--gpus-per-node=1", "--requeue"], environment=wanted)
    wait_until(lambda: cluster.job(launch.id).state == "PENDING" and "verdict: 69" in launch.output(), VISIT_S,
               "requeue", launch.last_words)  # fmt: skip
    login = cluster.host("login")

    def excluded() -> bool:
        return "ExcNodeList=n" in login.run(["scontrol", "show", "job", str(launch.id)]).stdout

    wait_until(excluded, 15, "node left out", launch.last_words)
    launch.cancel()
