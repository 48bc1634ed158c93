"""Fixtures of the cluster tests: one rehearsal cluster of two nodes, with verl.cpu in its registry."""

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
from tests.support.cluster.launches import HOME, STEPS, Launch, saved_step, submit, wait_until

NODES = 2
READY_S = 120
TRAINING_S = 600
REQUEUED_S = 2
"""A job that starts in the second of its requeue fails with "Killing non-startable batch JobId=…: Job credential
revoked" of slurmctld (3 of 40 jobs with `StartTime=now` at once, none of 40 after two seconds)."""


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
    """Remove the cluster of an earlier run and start; without --wait, which docker-compose 1.29 does not have."""
    compose.build_images(base_image.ensure(*base_image.debian(compose.debian())))
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
    """A running cluster."""
    cluster = Cluster(NODES, name=docker_compose_project_name)
    cluster.wait_ready(timeout_s=READY_S)
    return cluster


@pytest.fixture(scope="session")
def cluster(testbed: Cluster) -> Cluster:
    """A running cluster with this checkout in submitter's home, and a folder to submit from."""
    cluster_setup.copy_checkout(testbed)
    return testbed


@pytest.fixture(scope="session")
def environment(cluster: Cluster, cpu_image: str) -> dict[str, str]:
    """Environment of a job: the image, which both nodes have pulled from the registry."""
    return cluster_setup.job_environment(cluster_setup.load_for_docker(cluster, cpu_image))


@pytest.fixture(scope="session")
def stub(cluster: Cluster) -> str:
    """Path of a recipe whose training does nothing, in the folder to submit from."""
    return cluster_setup.copy_stub(cluster)


@pytest.fixture(scope="session")
def training(cluster: Cluster, environment: dict[str, str]) -> Launch:
    """verl's main_ppo over two nodes, which has completed in its second attempt.

    The first attempt got USR1, the warning before the time limit, after its first checkpoint and was requeued.
    """
    keys = {"save_freq": 1, "test_freq": STEPS, "total_training_steps": STEPS}
    arguments = ["demo_cpu", *(f"trainer.{key}={value}" for key, value in keys.items())]
    flags = ["--nodes=2", "--gpus-per-node=1", "--requeue"]
    launch = submit(cluster, arguments, flags=flags, environment=environment, folder=HOME, script="slurm/launch.sh")
    wait_until(lambda: saved_step(launch) > 0, TRAINING_S, "checkpoint", launch.end_of_output)
    login = cluster.host("login")
    login.run(["scancel", "--batch", "--signal=USR1", str(launch.id)])
    wait_until(lambda: cluster.job(launch.id).state == "PENDING", TRAINING_S, "requeue", launch.end_of_output)
    time.sleep(REQUEUED_S)
    login.run(["scontrol", "update", f"JobId={launch.id}", "StartTime=now"])  # otherwise Slurm holds it for two minutes
    launch.wait(TRAINING_S)
    return launch
