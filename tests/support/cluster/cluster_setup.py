"""Copies the checkout, an image and the stub recipe to a rehearsal cluster."""

from __future__ import annotations

from pathlib import Path

from slurm.testbed import Cluster, compose
from tests.support.cluster.launches import HOME, WORK

STUB = Path(__file__).parent / "stub"
SITE_PYTHON = Path(__file__).parent / "site_python.py"
ENVIRONMENT = "/home/site/verl"
PULL_TIMEOUT_S = 600


def copy_checkout(cluster: Cluster) -> None:
    """Copy this checkout to submitter's home, and make a folder to submit from."""
    cluster.sync_checkout()
    cluster.host("login").run(["mkdir", "-p", WORK], user="submitter")


def load_for_docker(cluster: Cluster, image: str) -> str:
    """Push an image of this machine, pull it on every node with docker, and return the value of VERLJOB_IMAGE."""
    return _load(cluster, image, "docker")


def load_for_podman(cluster: Cluster, image: str) -> str:
    """Push an image of this machine, pull it on every node with podman, and return the value of VERLJOB_IMAGE."""
    return _load(cluster, image, "podman")


def _load(cluster: Cluster, image: str, client: str) -> str:
    pushed = cluster.push(image)
    pull = f"srun --mem=1G {client} pull --quiet {pushed}"
    job = cluster.sbatch([f"--nodes={len(cluster.nodes)}", "--mem=1G", "--wrap", pull])
    ended = cluster.wait_job(job, timeout_s=PULL_TIMEOUT_S)
    assert ended.state == "COMPLETED", cluster.read(ended.output)
    return pushed


def load_for_bare(cluster: Cluster, image: str) -> str:
    """Make the Python environment of a site without containers, and return the value of VERLJOB_IMAGE."""
    client = [compose.docker_command(), "run", "--rm", "--volume", f"{cluster.name}_home:/home"]
    script = ["--volume", f"{SITE_PYTHON}:/site_python.py:ro", "--entrypoint", "python3"]
    compose.run([*client, *script, image, "/site_python.py", "ray[default]", "--without-dependencies", "verl"], {})
    return ENVIRONMENT


def job_environment(reference: str) -> dict[str, str]:
    """Return the environment of a job that runs an image of docker's."""
    return {"VERLJOB_IMAGE": reference, "VERLJOB_HOME": HOME}


def copy_stub(cluster: Cluster) -> str:
    """Copy the recipe whose training does nothing to the folder to submit from, where Python finds its module."""
    cluster.host("login").put(sorted(STUB.glob("*.*")), WORK, user="submitter")
    return f"{WORK}/stub.yaml"


def prepare(cluster: Cluster, image: str) -> tuple[dict[str, str], str]:
    """Copy checkout, image and stub; return the job's environment and the recipe."""
    copy_checkout(cluster)
    return job_environment(load_for_docker(cluster, image)), copy_stub(cluster)
