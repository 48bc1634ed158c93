"""What every job on a rehearsal cluster stands on: this checkout, an image on every node, the stub recipe."""

from __future__ import annotations

from pathlib import Path

from slurm.testbed import Cluster, compose
from tests.support.cluster.launches import HOME, WORK

STUB = Path(__file__).parent / "stub"
SITE_PYTHON = Path(__file__).parent / "site_python.py"
ENVIRONMENT = "/home/site/verl"


def bring_checkout(cluster: Cluster) -> None:
    """Put this checkout into submitter's home, and make a folder to submit from."""
    cluster.sync_checkout()
    cluster.host("login").run(["mkdir", "-p", WORK], user="submitter")


def bring_image(cluster: Cluster, image: str) -> dict[str, str]:
    """Push an image of this machine, let every node pull it, and return what a job needs in its environment."""
    pushed = cluster.push(image)
    nodes = len(cluster.nodes)
    job = cluster.sbatch([f"--nodes={nodes}", "--mem=1G", "--wrap", f"srun --mem=1G docker pull --quiet {pushed}"])
    ended = cluster.wait_job(job, timeout_s=600)
    assert ended.state == "COMPLETED", ended
    return {"VERLJOB_IMAGE": pushed, "VERLJOB_HOME": HOME}


def bring_for_podman(cluster: Cluster, image: str) -> str:
    """Push an image of this machine, let every node's podman pull it, and return what VERLJOB_IMAGE is."""
    pushed = cluster.push(image)
    nodes = len(cluster.nodes)
    job = cluster.sbatch([f"--nodes={nodes}", "--mem=1G", "--wrap", f"srun --mem=1G podman pull --quiet {pushed}"])
    ended = cluster.wait_job(job, timeout_s=600)
    assert ended.state == "COMPLETED", cluster.read(ended.output)
    return pushed


def bring_for_bare(cluster: Cluster, image: str) -> str:
    """Make the Python and the environment of a site without containers, and return what VERLJOB_IMAGE is."""
    client = [compose.docker_command(), "run", "--rm", "--volume", f"{cluster.name}_home:/home"]
    script = ["--volume", f"{SITE_PYTHON}:/site_python.py:ro", "--entrypoint", "python3"]
    compose.run([*client, *script, image, "/site_python.py", "ray[default]", "--alone", "verl"], {})
    return ENVIRONMENT


def bring_stub(cluster: Cluster) -> str:
    """Put the recipe whose training does nothing into the folder to submit from, where Python finds its module."""
    cluster.host("login").put(sorted(STUB.glob("*.*")), WORK, user="submitter")
    return f"{WORK}/stub.yaml"


def prepare(cluster: Cluster, image: str) -> tuple[dict[str, str], str]:
    """Bring all of it; return the job's environment and the recipe."""
    bring_checkout(cluster)
    return bring_image(cluster, image), bring_stub(cluster)
