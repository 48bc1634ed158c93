"""Podman and bare pass the tests of the other files, which use Docker."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from slurm.testbed import Cluster
from tests.support.cluster import cluster_setup
from tests.support.cluster.launches import HOME, Launch, leftovers, submit, wait_until

RUNTIMES = ["podman", "bare"]
STORE = "/var/lib/containers/2001"
ENDED_S = 240
GONE_S = 30
HALF = ("--cpus-per-task=4", "--mem=8G", "--gpus-per-node=1")
"""Half a node: the jobs of both runtimes share the nodes."""


@pytest.fixture(scope="module")
def images(cluster: Cluster, cpu_image: str) -> dict[str, str]:
    """Value of VERLJOB_IMAGE for each runtime; both nodes have the image."""
    with ThreadPoolExecutor() as pool:
        podman = pool.submit(cluster_setup.load_for_podman, cluster, cpu_image)
        bare = pool.submit(cluster_setup.load_for_bare, cluster, cpu_image)
        return {"podman": podman.result(), "bare": bare.result()}


Started = Mapping[str, Launch]
"""A job of each runtime."""


def start(
    cluster: Cluster, images: dict[str, str], arguments: list[str], *flags: str, runtimes: Sequence[str] = RUNTIMES
) -> dict[str, Launch]:
    launches = {}
    for runtime in runtimes:
        environment = {"VERLJOB_RUNTIME": runtime, "VERLJOB_IMAGE": images[runtime], "VERLJOB_HOME": HOME}
        launches[runtime] = submit(cluster, arguments, flags=[*HALF, *flags], environment=environment)
    return launches


@pytest.fixture(scope="module")
def two_nodes(cluster: Cluster, stub: str, images: dict[str, str]) -> Started:
    launches = start(cluster, images, [stub, "stub.code=7"], "--nodes=2")
    for launch in launches.values():
        launch.wait(ENDED_S)
    return launches


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_two_nodes_form_a_cluster_and_the_exit_code_of_training_is_the_jobs(two_nodes: Started, runtime: str) -> None:
    launch = two_nodes[runtime]
    job = launch.cluster.job(launch.id)

    assert (job.state, job.code) == ("FAILED", 7), launch.end_of_output()
    assert launch.result()["stage"] == "train"
    assert re.search("^nodes +n1 .*, n2 ", launch.output(), re.MULTILINE)
    assert launch.output().strip().splitlines()[-1].startswith("verdict: 7")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_rays_logs_of_every_node_are_in_the_run_directory(two_nodes: Started, runtime: str) -> None:
    launch = two_nodes[runtime]
    logs = launch.cluster.host("login").run(["find", launch.run_dir, "-name", "raylet.out"]).stdout

    assert {path.split("/")[-3] for path in logs.split()} == {"0-n1", "1-n2"}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_output_names_limits_that_the_runtime_does_not_set(two_nodes: Started, runtime: str) -> None:
    line = f"n1: the runtime {runtime} does not limit, beyond what Slurm does: "

    assert line in two_nodes[runtime].output()


def test_every_file_belongs_to_the_account(two_nodes: Started) -> None:
    cluster = two_nodes["bare"].cluster
    foreign = cluster.host("login").run(["find", "/home/submitter", "!", "-user", "submitter"])

    assert foreign.stdout == ""


def test_nothing_is_left_on_the_nodes(two_nodes: Started, cluster: Cluster) -> None:
    wait_until(lambda: all_leftovers(cluster) == {}, GONE_S, "clean nodes", lambda: all_leftovers(cluster))


@pytest.fixture(scope="module")
def lasting(cluster: Cluster, stub: str, images: dict[str, str]) -> Mapping[str, Started]:
    """Jobs in the middle of a training of ten minutes, one of each runtime on each node."""
    arguments = [stub, "stub.seconds=600"]
    started = {node: start(cluster, images, arguments, "--nodes=1", f"--nodelist={node}") for node in cluster.nodes}
    for launches in started.values():
        for launch in launches.values():
            launch.wait_for("stub training runs", ENDED_S)
    return started


@pytest.fixture(scope="module")
def cancelled(lasting: Mapping[str, Started]) -> Started:
    """The jobs on n1, after scancel."""
    for launch in lasting["n1"].values():
        launch.cancel()
    return lasting["n1"]


@pytest.fixture(scope="module")
def killed(lasting: Mapping[str, Started]) -> Started:
    """The jobs on n2, after SIGKILL of node.sh."""
    for launch in lasting["n2"].values():
        launch.cluster.host("n2").run(["pkill", "-KILL", "-f", "^bash /.*slurm/node.sh"], check=False)
    return lasting["n2"]


def test_scancel_leaves_nothing(cancelled: Started, cluster: Cluster) -> None:
    wait_until(lambda: all_leftovers(cluster, "n1") == {}, GONE_S, "clean node", lambda: all_leftovers(cluster, "n1"))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_cancelled_job_has_state_and_verdict(cancelled: Started, runtime: str) -> None:
    assert cancelled[runtime].wait(GONE_S).state == "CANCELLED"
    assert "verdict: 143" in cancelled[runtime].output()


def test_sigkill_of_node_sh_leaves_nothing(killed: Started, cluster: Cluster) -> None:
    wait_until(lambda: all_leftovers(cluster, "n2") == {}, GONE_S, "clean node", lambda: all_leftovers(cluster, "n2"))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_sigkill_of_node_sh_ends_the_job(killed: Started, runtime: str) -> None:
    job = killed[runtime].wait(GONE_S)

    assert job.state == "FAILED"
    assert job.code in {76, 137}, killed[runtime].end_of_output()


def test_sigkill_of_the_supervisor_leaves_nothing_without_a_container(
    cluster: Cluster, stub: str, images: dict[str, str]
) -> None:
    launch = start(cluster, images, [stub, "stub.seconds=600"], "--nodes=1", runtimes=["bare"])["bare"]
    launch.wait_for("stub training runs", ENDED_S)
    cluster.host("n1").run(["pkill", "-KILL", "-f", "python3 -m verl_node$"])

    job = launch.wait(GONE_S)

    assert (job.state, job.code) == ("FAILED", 76), launch.end_of_output()
    assert "the container on n1 was killed" in launch.result()["cause"]
    wait_until(lambda: all_leftovers(cluster) == {}, GONE_S, "clean nodes", lambda: all_leftovers(cluster))


@pytest.mark.parametrize(("runtime", "absent"), [("podman", "registry:5000/verl.cpu:absent"), ("bare", "/home/absent")])
def test_a_missing_image_ends_with_66_and_a_fix(cluster: Cluster, stub: str, runtime: str, absent: str) -> None:
    launch = start(cluster, {runtime: absent}, [stub], "--nodes=1", runtimes=[runtime])[runtime]
    job = launch.wait(GONE_S)

    assert job.code == 66, launch.end_of_output()
    assert absent in launch.result()["cause"]
    assert launch.result()["fix"]


def all_leftovers(cluster: Cluster, *nodes: str) -> dict[str, str]:
    """List the leftovers on these nodes, by default all, including podman's processes and containers.

    Does not run podman, which would start a process that stays.
    """
    commands = {
        "podman": ["pgrep", "--ignore-ancestors", "-a", "podman|conmon|crun"],
        "podman containers": [
            "find",
            "/var/lib/containers/submitter/overlay-containers",
            "-mindepth",
            "1",
            "-type",
            "d",
        ],
    }
    listed = leftovers(cluster)
    for node in cluster.nodes:
        for kind, argv in commands.items():
            output = cluster.host(node).run(argv, check=False).stdout.strip()
            listed.update({f"{kind} of {node}": output} if output else {})
    return {kind: output for kind, output in listed.items() if kind.rpartition(" ")[2] in (nodes or cluster.nodes)}
