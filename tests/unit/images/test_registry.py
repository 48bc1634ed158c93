"""Asking a registry: with docker's logins, no byte twice, and no byte believed that its digest does not vouch for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from images import attachments
from images.attachments import SBOM
from images.errors import NotTrusted, RegistryFailed
from images.registry import DOCKER_MANIFEST, INDEXES, OCI_MANIFEST, Repository
from tests.unit.images.fake_registry import PAIR, SUBJECT, FakeRegistry, running

pytestmark = pytest.mark.usefixtures("engine_settings")


def log_in(folder: Path, host: str) -> None:
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": PAIR}}}))


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("r.example/team/verl.cpu", "https://r.example/v2/team/verl.cpu/"),
        ("plain.example:5000/verl.cpu", "http://plain.example:5000/v2/verl.cpu/"),
        ("127.0.0.1:5000/verl.cpu", "http://127.0.0.1:5000/v2/verl.cpu/"),
        ("team/verl.cpu", "https://registry-1.docker.io/v2/team/verl.cpu/"),
    ],
)
def test_a_registry_is_reached_as_the_engine_reaches_it(name: str, url: str) -> None:
    with Repository(name) as repository:
        assert repository.url == url


def test_an_attachment_comes_back_and_a_second_time_nothing_is_sent(
    server: FakeRegistry, repository: Repository
) -> None:
    subject = attachments.image(repository, "1")
    attachments.attach(repository, subject, SBOM, b"{1}")
    server.asked.clear()
    kept = attachments.attach(repository, subject, SBOM, b"{1}")

    assert [each for each in server.asked if not each.startswith(("GET", "HEAD"))] == []
    assert attachments.fetch(repository, subject, SBOM) == b"{1}"
    assert server.manifests[f"{subject.digest.replace(':', '-')}.sbom"] == (OCI_MANIFEST, kept.content)
    assert kept.parts["subject"]["digest"] == subject.digest
    assert kept.parts["layers"][0]["mediaType"] == "text/spdx+json"


def test_an_attachment_takes_the_place_of_the_one_before(repository: Repository) -> None:
    subject = attachments.image(repository, "1")
    for content in (b"{1}", b"{2}"):
        attachments.attach(repository, subject, SBOM, content)

    assert attachments.fetch(repository, subject, SBOM) == b"{2}"


def test_an_image_that_is_not_there_and_one_without_attachment_are_said(repository: Repository) -> None:
    with pytest.raises(NotTrusted, match=r"verl\.cpu has no 2; `invoke push`"):
        attachments.image(repository, "2")
    with pytest.raises(NotTrusted, match=r"verl.cpu@sha256:[0-9a-f]{64} has no SBOM; `invoke push` attaches it"):
        attachments.fetch(repository, attachments.image(repository, "1"), SBOM)


def test_images_of_several_platforms_are_not_one_image(server: FakeRegistry, repository: Repository) -> None:
    both = [{"digest": f"sha256:{arch}", "platform": {"architecture": arch}} for arch in ("amd64", "arm64")]
    server.keep("several", json.dumps({"manifests": both}).encode(), INDEXES[0])

    with pytest.raises(NotTrusted, match="several platforms as several: name one by its digest"):
        attachments.image(repository, "several")


def test_an_index_of_one_image_and_what_its_builder_attested_is_that_image(
    server: FakeRegistry, repository: Repository
) -> None:
    one = {"digest": attachments.image(repository, "1").digest, "platform": {"architecture": "amd64"}}
    attested = {"digest": "sha256:0", "platform": {"architecture": "unknown"}}
    digest = server.keep("index", json.dumps({"manifests": [one, attested]}).encode(), INDEXES[0])

    subject = attachments.image(repository, "index")

    assert subject.digest == digest
    assert attachments.ids(repository, subject) == {digest, "sha256:" + "c" * 64}


def test_an_attachment_that_was_made_for_another_image_is_refused(server: FakeRegistry, repository: Repository) -> None:
    first = attachments.image(repository, "1")
    theirs = attachments.attach(repository, first, SBOM, b"{1}")
    other = server.keep("other", SUBJECT + b" ", DOCKER_MANIFEST)
    server.keep(attachments.tag(other, SBOM), theirs.content, OCI_MANIFEST)

    with pytest.raises(NotTrusted, match=f"is attached to another image, {first.digest}"):
        attachments.fetch(repository, attachments.image(repository, "other"), SBOM)


def test_an_attachment_of_another_kind_is_refused(server: FakeRegistry, repository: Repository) -> None:
    subject = attachments.image(repository, "1")
    empty = json.dumps({"layers": [], "subject": {"digest": subject.digest}}).encode()
    server.keep(attachments.tag(subject.digest, SBOM), empty, OCI_MANIFEST)

    with pytest.raises(NotTrusted, match="has no SBOM"):
        attachments.fetch(repository, subject, SBOM)


def test_bytes_of_another_digest_are_not_taken(server: FakeRegistry, repository: Repository) -> None:
    subject = attachments.image(repository, "1")
    layer = attachments.attach(repository, subject, SBOM, b"{1}").parts["layers"][0]["digest"]
    server.blobs[layer] = b"{2}"
    server.manifests[subject.digest] = (DOCKER_MANIFEST, b"{}")

    with pytest.raises(RegistryFailed, match="came with other bytes"):
        attachments.fetch(repository, subject, SBOM)
    with pytest.raises(RegistryFailed, match="gave a manifest of digest"):
        repository.manifest(subject.digest)


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_dockers_own_login_is_used(tmp_path: Path, kind: str) -> None:
    with running(login=kind) as server:
        server.keep("1", SUBJECT, DOCKER_MANIFEST)
        log_in(tmp_path, server.host)
        with Repository(f"{server.host}/x") as repository:
            subject = attachments.image(repository, "1")
            attachments.attach(repository, subject, SBOM, b"{1}")

            assert attachments.fetch(repository, subject, SBOM) == b"{1}"


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_without_a_login_the_fix_is_named(kind: str) -> None:
    with (
        running(login=kind) as server,
        Repository(f"{server.host}/x") as repository,
        pytest.raises(RegistryFailed, match=f"401 who are you.*`docker login {server.host}` first"),
    ):
        repository.manifest("1")


def test_a_registry_that_is_not_there_does_not_answer() -> None:
    with Repository("127.0.0.1:1/x") as repository, pytest.raises(RegistryFailed, match="does not answer"):
        repository.manifest("1")
