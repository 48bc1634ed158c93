"""SBOM, provenance and signature of an image, in a real registry and against real images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import DockerClient
from docker.errors import ImageNotFound
from docker.models.images import Image
from packaging.utils import canonicalize_name

from images.contents import packages, rootfs
from images.engine import base_image
from images.engine.client import choose
from images.errors import NotTrusted
from images.host.process import run
from images.provenance import attest, sbom, verify
from images.registry import push, referrers
from images.registry.client import OCI_MANIFEST, Repository
from images.registry.referrers import PROVENANCE, SBOM
from images.report import record
from tests.support.images import debian_cosign, recorded_image
from tests.support.paths import CHECKOUT

NAME = "verljob-test-trust"
# Lists an image's packages with its own tools, inside of it.
ASK = r"""
dpkg-query --show --showformat '${db:Status-Status} deb ${Package} ${Version}\n' | sed -n 's/^installed //p'
find / -xdev -path '*.dist-info/METADATA' -o -xdev -name '*.egg-info' | while read -r found; do
    test ! -d "$found" || found=$found/PKG-INFO
    sed -n '1,/^$/{s/^Name: /pypi /p;s/^Version: //p}' "$found" | paste -s -d ' ' | tr -d '\r'
done
"""


@pytest.fixture(scope="module")
def built(docker_client: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """An image of a few layers with the toolkit, and its record as `invoke build` writes it."""
    with recorded_image.built(NAME, tmp_path_factory.mktemp("staged")) as image:
        yield image


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A private and a public key."""
    private, public = (tmp_path_factory.mktemp("keys") / name for name in ("key.pem", "key.pub"))
    run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(private)])
    run(["openssl", "pkey", "-in", str(private), "-pubout", "-out", str(public)])
    return private, public


@pytest.fixture(scope="module")
def pushed(
    registry: str, built: Image, keys: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """NAME:TAG of the image, pushed with signed SBOM and provenance, and its digest."""
    reference = f"{registry}/team/{NAME}:1"
    built.tag(reference)
    digest = push.push_references(choose(), [reference])[reference]
    attest.attach({reference: digest}, tmp_path_factory.mktemp("files"), keys[0])
    return reference, digest


def test_layers_and_export_of_an_image_have_the_same_packages(built: Image) -> None:
    folders = rootfs.layer_folders(built)
    assert folders, "these tests run as root with overlay2"

    found = rootfs.read_folders(folders, packages.is_database)

    assert found == rootfs.read_export(built, packages.is_database)
    assert sorted(path for path in found if path.startswith("opt/")) == [
        "opt/a/stays-1.dist-info/METADATA",
        "opt/anew/new-1.dist-info/METADATA",
    ]


def test_sbom_of_verl_cpu_agrees_with_its_own_tools_within_two_seconds(daemon: DockerClient, cpu_image: str) -> None:
    image = daemon.images.get(cpu_image)
    seconds = []
    for _ in range(2):  # containers of other suites may be ending
        started = time.monotonic()
        stated = packages.inside(image)
        seconds.append(time.monotonic() - started)
    output = daemon.containers.run(cpu_image, ["-c", ASK], entrypoint="bash", user="0", remove=True).decode()

    inside = {tuple(line.split()) for line in output.splitlines() if len(line.split()) == 3}
    kinds = [(each, each.purl.split(":")[1].split("/")[0]) for each in stated]
    listed = {(kind, each.name, each.version) for each, kind in kinds}

    assert len(inside) > 200
    assert {(kind, canonicalize_name(name), v) for kind, name, v in inside} == {
        (kind, canonicalize_name(name), v) for kind, name, v in listed
    }
    assert min(seconds) < 2


def test_record_of_verl_cpus_build_matches_the_image(daemon: DockerClient, cpu_image: str) -> None:
    image = daemon.images.get(cpu_image)
    recorded = record.read(str(image.id))
    assert recorded is not None

    files = rootfs.read(image, lambda path: path.startswith(verify.TOOLKIT_FOLDER))

    assert list(verify.check_origin(recorded, image, files)) == []


def test_pushed_image_is_verified(pushed: tuple[str, str], keys: tuple[Path, Path]) -> None:
    reference, digest = pushed
    invoke = [sys.executable, "-m", "invoke", "--search-root", str(CHECKOUT)]

    output = run([*invoke, "image.verify", "--image", reference, "--key", str(keys[1])])

    assert output.startswith(f"{reference.rpartition(':')[0]}@{digest}: ")
    assert output.endswith(
        f" packages, same as in the SBOM; base and toolkit as stated; signed by the owner of {keys[1]}\n"
    )


@pytest.mark.parametrize("suite", debian_cosign.SUITES)
@pytest.mark.parametrize("by_tag", [True, False])
def test_job_runs_a_signed_image_by_its_digest(
    pushed: tuple[str, str], keys: tuple[Path, Path], by_tag: bool, suite: str
) -> None:
    reference, digest = pushed
    name = reference.rpartition(":")[0]

    done = required(reference if by_tag else f"{name}@{digest}", keys[1], suite)

    assert (done.returncode, done.stdout) == (0, f"{name}@{digest}\n"), done.stderr


def test_engine_with_another_image_under_the_digest_exits_with_77(
    pushed: tuple[str, str], keys: tuple[Path, Path], built: Image
) -> None:
    reference, digest = pushed
    name = reference.rpartition(":")[0]

    done = required(
        reference, keys[1], "trixie", f"IMAGE_ID=$(docker image inspect --format '{{{{.Id}}}}' {base_image.ensure()})"
    )

    assert done.returncode == 77
    assert f"for {name}@{digest}, which was verified, and it has the digests" in done.stderr


@pytest.mark.parametrize("suite", debian_cosign.SUITES)
def test_job_refuses_an_unsigned_image_and_one_signed_by_another_key(
    daemon: DockerClient, registry: str, pushed: tuple[str, str], tmp_path: Path, suite: str
) -> None:
    run(["openssl", "genrsa", "-out", str(tmp_path / "key"), "2048"])
    run(["openssl", "pkey", "-in", str(tmp_path / "key"), "-pubout", "-out", str(tmp_path / "pub")])
    unsigned = f"{registry}/unsigned/{NAME}:1"
    daemon.images.get(base_image.ensure()).tag(unsigned)
    push.push_references(choose(), [unsigned])
    daemon.images.remove(unsigned)

    by_another, by_none = (required(each, tmp_path / "pub", suite) for each in (pushed[0], unsigned))

    assert (by_another.returncode, by_none.returncode) == (77, 77)
    assert f"{pushed[0]} is signed, but not this image by the owner of {tmp_path / 'pub'}" in by_another.stderr
    assert f"{unsigned} is not signed" in by_none.stderr


def required(reference: str, key: Path, suite: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Pin, find and compare an image with the shell libraries of a job's first node; print the image that it runs."""
    libraries = [
        f". slurm/lib/{name}.sh"
        for name in ("common/log", "common/verdict", "common/process", "runtime/runtime", "node/signed_image")
    ]
    end = [
        """trap 'printf "%s\\n" "${VERDICT[cause]-}" >&2' EXIT""",
        "signed_image::pin",
        'signed_image::require_pinned && runtime::find "$VERLJOB_IMAGE"',
        before,
        'signed_image::require_digest && printf "%s\\n" "$VERLJOB_IMAGE"',
    ]
    variables = {"VERLJOB_RUNTIME": "docker", "VERLJOB_IMAGE": reference, "VERLJOB_REQUIRE_SIGNATURE": str(key)}
    variables["VERLJOB_COSIGN"] = str(debian_cosign.ensure(suite))
    script = "\n".join(["set -Eeuo pipefail", "HOST=n1 STAGE=image ENDING=", *libraries, *end])
    environment = {**os.environ, **variables, "VERLJOB_HOME": str(CHECKOUT)}
    bash = ["bash", "-c", script]
    return subprocess.run(bash, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)


def test_statements_are_under_the_images_digest_and_in_no_label(pushed: tuple[str, str], built: Image) -> None:
    reference, digest = pushed
    repository, _ = Repository.parse(reference)
    with repository:
        kept = [repository.manifest(f"{digest.replace(':', '-')}.{ending}") for ending in ("sbom", "provenance")]

    assert [each.parsed["subject"]["digest"] for each in kept if each] == [digest, digest]
    assert not [label for label in built.labels if "sbom" in label or "provenance" in label]


def test_attaching_again_changes_nothing(pushed: tuple[str, str], tmp_path: Path) -> None:
    reference, digest = pushed
    repository, _ = Repository.parse(reference)
    with repository:
        before = [repository.manifest(referrers.tag(digest, kind)) for kind in (SBOM, PROVENANCE)]
        files = attest.attach({reference: digest}, tmp_path)
        after = [repository.manifest(referrers.tag(digest, kind)) for kind in (SBOM, PROVENANCE)]

        assert before == after
        assert files[0].read_bytes() == referrers.fetch(repository, referrers.find_image(repository, digest), SBOM)


def test_missing_image_is_pulled_by_its_digest(daemon: DockerClient, pushed: tuple[str, str], built: Image) -> None:
    reference, digest = pushed
    name = reference.rpartition(":")[0]
    daemon.images.remove(reference)
    with pytest.raises(ImageNotFound):
        daemon.images.get(f"{name}@{digest}")

    assert digest in verify.verify(f"{name}@{digest}")
    built.tag(reference)


def test_extra_package_in_the_image_fails_with_its_name(
    daemon: DockerClient, registry: str, pushed: tuple[str, str], tmp_path: Path
) -> None:
    # Another image, with the first one's statements forged to its digest.
    reference, digest = pushed
    (tmp_path / "Dockerfile").write_text(f"FROM {NAME}\nRUN touch /opt/new\n")
    other = f"{registry}/team/{NAME}:2"
    run(choose().build_argv(["--tag", other, str(tmp_path)]), choose().environment)
    theirs = push.push_references(choose(), [other])[other]
    repository, _ = Repository.parse(reference)
    with repository:
        first, second = (referrers.find_image(repository, each) for each in (digest, theirs))
        for kind in (SBOM, PROVENANCE):
            content = referrers.fetch(repository, first, kind).replace(digest[7:].encode(), theirs[7:].encode())
            content = content.replace(b"pypi/stays", b"pypi/other").replace(b'"stays"', b'"other"')
            referrers.attach(repository, second, kind, content)

    argv = [sys.executable, "-m", "invoke", "--search-root", str(CHECKOUT), "image.verify", "--image", other]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"NotTrusted: {registry}/team/{NAME}@{theirs}: the SBOM lists other 1 in /opt/a, which" in done.stderr
    assert "the image has stays 1 in /opt/a, which the SBOM does not list" in done.stderr
    daemon.images.remove(other)


def test_statements_copied_from_another_image_are_refused(
    daemon: DockerClient, registry: str, pushed: tuple[str, str]
) -> None:
    reference, digest = pushed
    other = f"{registry}/team/{NAME}:base"
    daemon.images.get(base_image.ensure()).tag(other)
    theirs = push.push_references(choose(), [other])[other]
    repository, _ = Repository.parse(reference)
    with repository:
        for kind in (SBOM, PROVENANCE):
            copied = repository.manifest(referrers.tag(digest, kind))
            assert copied
            repository.put_manifest(referrers.tag(theirs, kind), {**copied.parsed, "mediaType": OCI_MANIFEST})

    with pytest.raises(NotTrusted, match=f"is attached to another image, {digest}"):
        verify.verify(other)
    daemon.images.remove(other)


def test_image_without_statements_is_not_verified(daemon: DockerClient, registry: str) -> None:
    silent = f"{registry}/silent/{NAME}:1"
    daemon.images.get(base_image.ensure()).tag(silent)
    push.push_references(choose(), [silent])[silent]

    with pytest.raises(NotTrusted, match="has no SBOM; `invoke push` attaches it"):
        verify.verify(silent)
    daemon.images.remove(silent)


def test_statements_of_a_local_image_name_its_id(built: Image, tmp_path: Path) -> None:
    files = attest.write(NAME, tmp_path)

    digest, stated = sbom.read(files[0].read_bytes())
    assert digest == built.id
    assert len(stated) == len(packages.inside(built))
    assert json.loads(files[1].read_text())["subject"][0]["digest"] == {"sha256": str(built.id)[7:]}
