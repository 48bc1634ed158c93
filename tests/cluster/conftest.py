"""One rehearsal cluster of two nodes for all tests here, driven by pytest-docker, with verl.cpu in its registry."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_docker.plugin import Services

from images import base, build, engine
from images.catalog import Catalog
from slurm.testbed import Cluster, compose
from tests.cluster.launches import HOME, WORK

NODES = 2
READY_S = 120
STUB = Path(__file__).parent / "stub"


@pytest.fixture(scope="session")
def docker_client() -> Iterator[str]:
    """Make the client that can use BuildKit the choice of all parts."""
    with pytest.MonkeyPatch.context() as patch:
        client = engine.choose().client
        patch.setenv("VERLJOB_DOCKER", client)
        yield client


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
    compose.build_images(base.ensure())
    compose.make_volumes()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in compose.environment(NODES).items():
            patch.setenv(name, value)
        yield [shlex.join(compose.down_words()), shlex.join(compose.up_words(NODES))]


@pytest.fixture(scope="session")
def docker_cleanup() -> list[str]:
    return [shlex.join(compose.down_words())]


@pytest.fixture(scope="session")
def verl_cpu(docker_client: str) -> str:
    """A reference of verl.cpu on this machine, built where it lacks or has changed."""
    catalog = Catalog.read()
    spec = catalog.find(platform="cpu")
    tags = build.names(spec, catalog)
    build.build(spec, build.Site.here(), tags)
    return tags[0]


@pytest.fixture(scope="session")
def testbed(docker_compose_project_name: str, docker_services: Services) -> Cluster:
    """A cluster that takes jobs."""
    found = Cluster(NODES, name=docker_compose_project_name)
    found.wait_ready(timeout_s=READY_S)
    return found


@pytest.fixture(scope="session")
def cluster(testbed: Cluster) -> Cluster:
    """A cluster that takes jobs, with this checkout in submitter's home and a folder to submit from."""
    testbed.sync_checkout()
    testbed.host("login").run(["mkdir", "-p", WORK], user="submitter")
    return testbed


@pytest.fixture(scope="session")
def environment(cluster: Cluster, verl_cpu: str) -> dict[str, str]:
    """What a job needs in its environment: the image, which both nodes have pulled from the registry."""
    image = cluster.push(verl_cpu)
    job = cluster.sbatch([f"--nodes={NODES}", "--mem=1G", "--wrap", f"srun --mem=1G docker pull --quiet {image}"])
    ended = cluster.wait_job(job, timeout_s=600)
    assert ended.state == "COMPLETED", ended
    return {"VERLJOB_IMAGE": image, "VERLJOB_HOME": HOME}


@pytest.fixture(scope="session")
def stub(cluster: Cluster) -> str:
    """A recipe whose training does nothing, in the folder to submit from, where Python finds its module."""
    cluster.host("login").put([STUB / "stub.yaml", STUB / "stub_training.py"], WORK, user="submitter")
    return f"{WORK}/stub.yaml"
