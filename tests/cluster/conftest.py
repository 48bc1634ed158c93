"""One rehearsal cluster of two nodes for all tests here, driven by pytest-docker, with verl.cpu in its registry."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator

import pytest
from pytest_docker.plugin import Services

from images.engine import base_image
from slurm.testbed import Cluster, compose
from tests.support.cluster import cluster_setup
from tests.support.cluster.launches import HOME, STEPS, Launch, saved, submit, wait_until

NODES = 2
READY_S = 120
TRAINING_S = 600
REQUEUED_S = 2
"""A job that starts in the second of its requeue fails: slurmctld says "Killing non-startable batch JobId=…:
Job credential revoked" (3 of 40 jobs that were told `StartTime=now` at once, none of 40 after two seconds)."""


@pytest.fixture(scope="session")
def docker_compose_command(docker_client: str) -> str:
    return shlex.join(compose.compose_command())


@pytest.fixture(scope="session")
def docker_compose_file() -> str:
    return str(compose.COMPOSE_FILE)


@pytest.fixture(scope="session")
def docker_compose_project_name() -> str:
    return f"{os.environ.get('VERLJOB_TESTBED') or 'verljob'}-test"


@pytest.fixture(scope="session")
def docker_setup(docker_client: str) -> Iterator[list[str]]:
    """Start without --wait, which docker-compose 1.29 lacks; what an earlier run left behind goes first."""
    compose.build_images(base_image.ensure())
    compose.make_volumes()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in compose.environment(NODES).items():
            patch.setenv(name, value)
        yield [shlex.join(compose.down_arguments()), shlex.join(compose.up_arguments(NODES))]


@pytest.fixture(scope="session")
def docker_cleanup() -> list[str]:
    return [shlex.join(compose.down_arguments())]


@pytest.fixture(scope="session")
def testbed(docker_compose_project_name: str, docker_services: Services) -> Cluster:
    """A cluster that takes jobs."""
    found = Cluster(NODES, name=docker_compose_project_name)
    found.wait_ready(timeout_s=READY_S)
    return found


@pytest.fixture(scope="session")
def cluster(testbed: Cluster) -> Cluster:
    """A cluster that takes jobs, with this checkout in submitter's home and a folder to submit from."""
    cluster_setup.bring_checkout(testbed)
    return testbed


@pytest.fixture(scope="session")
def environment(cluster: Cluster, cpu_image: str) -> dict[str, str]:
    """What a job needs in its environment: the image, which both nodes have pulled from the registry."""
    return cluster_setup.bring_image(cluster, cpu_image)


@pytest.fixture(scope="session")
def stub(cluster: Cluster) -> str:
    """A recipe whose training does nothing, in the folder to submit from, where Python finds its module."""
    return cluster_setup.bring_stub(cluster)


@pytest.fixture(scope="session")
def training(cluster: Cluster, environment: dict[str, str]) -> Launch:
    """verl's own main_ppo over two nodes, ended by itself in its second attempt.

    The first one was told, after its first checkpoint, that its time is nearly over, and started again.
    """
    keys = {"save_freq": 1, "test_freq": STEPS, "total_training_steps": STEPS}
    words = ["demo_cpu", *(f"trainer.{key}={value}" for key, value in keys.items())]
    flags = ["--nodes=2", "--gpus-per-node=1", "--requeue"]
    launch = submit(cluster, words, flags=flags, environment=environment, folder=HOME, script="slurm/launch.sh")
    wait_until(lambda: saved(launch) > 0, TRAINING_S, "checkpoint", launch.last_words)
    login = cluster.host("login")
    login.run(["scancel", "--batch", "--signal=USR1", str(launch.id)])
    wait_until(lambda: cluster.job(launch.id).state == "PENDING", TRAINING_S, "requeue", launch.last_words)
    time.sleep(REQUEUED_S)
    login.run(["scontrol", "update", f"JobId={launch.id}", "StartTime=now"])  # Slurm would hold it for two minutes
    launch.wait(TRAINING_S)
    return launch
