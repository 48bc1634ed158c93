"""Required signatures: launch.sh verifies the image with Debian's cosign, and all nodes run the verified digest."""

from __future__ import annotations

import pytest

from images.host.process import run
from images.provenance import signing
from images.registry import referrers
from images.registry.client import Repository
from slurm.testbed import Cluster
from tests.support.cluster import cluster_setup
from tests.support.cluster.launches import HOME, WORK, Launch, leftovers, submit
from tests.support.images import debian_cosign

RUNTIMES = ["docker", "podman"]
HALF = ("--nodes=2", "--cpus-per-task=4", "--mem=8G", "--gpus-per-node=1")
ENDED_S = 240
SOON_S = 60
SIGNERS = ("ours", "another")


@pytest.fixture(scope="module")
def digest(
    cluster: Cluster, cpu_image: str, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Digest of verl.cpu, which `ours` signed and `another` did not; the account has both public keys."""
    folder = tmp_path_factory.mktemp("keys")
    for signer in SIGNERS:
        run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(folder / signer)])
        run(["openssl", "pkey", "-in", str(folder / signer), "-pubout", "-out", str(folder / f"{signer}.pub")])
    with Repository(f"{cluster.registry()}/{cpu_image.partition(':')[0]}") as repository:
        subject = referrers.find_image(repository, cpu_image.partition(":")[2])
        signing.sign(repository, subject, folder / SIGNERS[0], {})
    public = [folder / f"{signer}.pub" for signer in SIGNERS]
    cluster.host("login").put([debian_cosign.ensure("trixie"), *public], WORK, user="submitter")
    cluster_setup.load_for_podman(cluster, cpu_image)
    return subject.digest


def start(cluster: Cluster, stub: str, image: str, signer: str) -> dict[str, Launch]:
    """Start a job of each runtime that requires a signature of this signer."""
    required = {"VERLJOB_REQUIRE_SIGNATURE": f"{WORK}/{signer}.pub", "VERLJOB_COSIGN": f"{WORK}/cosign"}
    settings = {"VERLJOB_IMAGE": image, "VERLJOB_HOME": HOME, **required}
    return {
        runtime: submit(cluster, [stub], flags=HALF, environment={**settings, "VERLJOB_RUNTIME": runtime})
        for runtime in RUNTIMES
    }


def test_docker_and_podman_run_the_verified_digest_on_every_node(
    cluster: Cluster, environment: dict[str, str], stub: str, digest: str
) -> None:
    image = environment["VERLJOB_IMAGE"]
    pinned = f"{image.rpartition(':')[0]}@{digest}"

    for launch in start(cluster, stub, image, "ours").values():
        job = launch.wait(ENDED_S)
        assert (job.state, job.code) == ("COMPLETED", 0), launch.end_of_output()
        assert f"{pinned} is signed by the owner of {WORK}/ours.pub" in launch.output()


def test_an_image_of_another_signer_ends_with_77_before_a_container_starts(
    cluster: Cluster, environment: dict[str, str], stub: str, digest: str
) -> None:
    for launch in start(cluster, stub, environment["VERLJOB_IMAGE"], "another").values():
        job = launch.wait(SOON_S)
        assert (job.state, job.code) == ("FAILED", 77), launch.end_of_output()
        assert "is signed, but not this image by the owner of" in launch.output().strip().splitlines()[-1]
    assert leftovers(cluster) == {}
