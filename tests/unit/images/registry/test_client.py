"""Asking a registry: with docker's logins, no byte twice, and no byte believed that its digest does not vouch for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from images.errors import NotTrusted, RegistryFailed
from images.host.process import run
from images.registry import client, referrers
from images.registry.client import DOCKER_MANIFEST, INDEXES, OCI_MANIFEST, Repository
from images.registry.referrers import SBOM
from tests.support.images import fake_registry
from tests.support.images.fake_registry import PAIR, SUBJECT, FakeRegistry, running

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
    subject = referrers.image(repository, "1")
    referrers.attach(repository, subject, SBOM, b"{1}")
    server.asked.clear()
    kept = referrers.attach(repository, subject, SBOM, b"{1}")

    assert [each for each in server.asked if not each.startswith(("GET", "HEAD"))] == []
    assert referrers.fetch(repository, subject, SBOM) == b"{1}"
    assert server.manifests[f"{subject.digest.replace(':', '-')}.sbom"] == (OCI_MANIFEST, kept.content)
    assert kept.parts["subject"]["digest"] == subject.digest
    assert kept.parts["layers"][0]["mediaType"] == "text/spdx+json"


def test_an_attachment_takes_the_place_of_the_one_before(repository: Repository) -> None:
    subject = referrers.image(repository, "1")
    for content in (b"{1}", b"{2}"):
        referrers.attach(repository, subject, SBOM, content)

    assert referrers.fetch(repository, subject, SBOM) == b"{2}"


def test_an_image_that_is_not_there_and_one_without_attachment_are_said(repository: Repository) -> None:
    with pytest.raises(NotTrusted, match=r"verl\.cpu has no 2; `invoke push`"):
        referrers.image(repository, "2")
    with pytest.raises(NotTrusted, match=r"verl.cpu@sha256:[0-9a-f]{64} has no SBOM; `invoke push` attaches it"):
        referrers.fetch(repository, referrers.image(repository, "1"), SBOM)


def test_images_of_several_platforms_are_not_one_image(server: FakeRegistry, repository: Repository) -> None:
    both = [{"digest": f"sha256:{arch}", "platform": {"architecture": arch}} for arch in ("amd64", "arm64")]
    server.keep("several", json.dumps({"manifests": both}).encode(), INDEXES[0])

    with pytest.raises(NotTrusted, match="several platforms as several: name one by its digest"):
        referrers.image(repository, "several")


def test_an_index_of_one_image_and_what_its_builder_attested_is_that_image(
    server: FakeRegistry, repository: Repository
) -> None:
    one = {"digest": referrers.image(repository, "1").digest, "platform": {"architecture": "amd64"}}
    attested = {"digest": "sha256:0", "platform": {"architecture": "unknown"}}
    digest = server.keep("index", json.dumps({"manifests": [one, attested]}).encode(), INDEXES[0])

    subject = referrers.image(repository, "index")

    assert subject.digest == digest
    assert referrers.ids(repository, subject) == {digest, "sha256:" + "c" * 64}


def test_an_attachment_that_was_made_for_another_image_is_refused(server: FakeRegistry, repository: Repository) -> None:
    first = referrers.image(repository, "1")
    theirs = referrers.attach(repository, first, SBOM, b"{1}")
    other = server.keep("other", SUBJECT + b" ", DOCKER_MANIFEST)
    server.keep(referrers.tag(other, SBOM), theirs.content, OCI_MANIFEST)

    with pytest.raises(NotTrusted, match=f"is attached to another image, {first.digest}"):
        referrers.fetch(repository, referrers.image(repository, "other"), SBOM)


def test_an_attachment_of_another_kind_is_refused(server: FakeRegistry, repository: Repository) -> None:
    subject = referrers.image(repository, "1")
    empty = json.dumps({"layers": [], "subject": {"digest": subject.digest}}).encode()
    server.keep(referrers.tag(subject.digest, SBOM), empty, OCI_MANIFEST)

    with pytest.raises(NotTrusted, match="has no SBOM"):
        referrers.fetch(repository, subject, SBOM)


def test_bytes_of_another_digest_are_not_taken(server: FakeRegistry, repository: Repository) -> None:
    subject = referrers.image(repository, "1")
    layer = referrers.attach(repository, subject, SBOM, b"{1}").parts["layers"][0]["digest"]
    server.blobs[layer] = b"{2}"
    server.manifests[subject.digest] = (DOCKER_MANIFEST, b"{}")

    with pytest.raises(RegistryFailed, match="came with other bytes"):
        referrers.fetch(repository, subject, SBOM)
    with pytest.raises(RegistryFailed, match="gave a manifest of digest"):
        repository.manifest(subject.digest)


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_dockers_own_login_is_used(tmp_path: Path, kind: str) -> None:
    with running(login=kind) as server:
        server.keep("1", SUBJECT, DOCKER_MANIFEST)
        log_in(tmp_path, server.host)
        with Repository(f"{server.host}/x") as repository:
            subject = referrers.image(repository, "1")
            referrers.attach(repository, subject, SBOM, b"{1}")

            assert referrers.fetch(repository, subject, SBOM) == b"{1}"


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


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.crt, and server.pem, with its key, for 127.0.0.2 and 127.0.0.3: what is no loopback name is asked over TLS."""
    folder = tmp_path_factory.mktemp("certificates")
    names = "subjectAltName=IP:127.0.0.2,IP:127.0.0.3"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    run(["openssl", "req", "-x509", *curve, "-subj", "/CN=test", "-keyout", f"{folder}/key", "-out", f"{folder}/ca.crt",
         "-addext", names])  # fmt: skip
    (folder / "server.pem").write_text((folder / "ca.crt").read_text() + (folder / "key").read_text())
    return folder


@pytest.fixture
def secure(
    certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., FakeRegistry]]:
    """Start registries over TLS whose CA docker knows; the first is the one that there is a login for."""
    monkeypatch.setattr(client, "CERTIFICATES", tmp_path / "certs.d")

    with ExitStack() as stack:

        def start(login: str = "", address: str = "127.0.0.2") -> FakeRegistry:
            server = stack.enter_context(running(login, address, certificates / "server.pem"))
            server.keep("1", SUBJECT, DOCKER_MANIFEST)
            (tmp_path / "certs.d" / server.host).mkdir(parents=True)
            (tmp_path / "certs.d" / server.host / "ca.crt").symlink_to(certificates / "ca.crt")
            if not (tmp_path / "config.json").exists():
                log_in(tmp_path, server.host)
            return server

        yield start


def manifest(server: FakeRegistry) -> str:
    with Repository(f"{server.host}/x") as repository:
        return referrers.image(repository, "1").digest


def test_a_token_service_on_another_host_over_https_gets_the_login(secure: Callable[..., FakeRegistry]) -> None:
    asked, tokens = secure("bearer"), secure(address="127.0.0.3")
    asked.challenge = f'Bearer realm="{tokens.url}/token",service="fake",scope="repository:x:pull"'

    assert manifest(asked).startswith("sha256:")
    assert tokens.heard == [f"/token Basic {PAIR}"]
    assert set(asked.heard) == {"/v2/x/manifests/1 Bearer let-in"}


def test_a_realm_over_http_of_a_registry_over_https_gets_no_login(secure: Callable[..., FakeRegistry]) -> None:
    asked = secure("bearer")
    with running() as thief:
        asked.challenge = f'Bearer realm="{thief.url}/token",service="fake"'
        with pytest.raises(RegistryFailed, match=rf"'{thief.url}/token', which is no address over https; no login"):
            manifest(asked)

        assert thief.heard == asked.heard == []


def test_a_registry_over_http_may_name_its_own_host_and_no_other(tmp_path: Path) -> None:
    with running("bearer") as asked, running(address="127.0.0.3") as thief:
        log_in(tmp_path, asked.host)
        asked.challenge = f'Bearer realm="{thief.url}/token"'
        with pytest.raises(RegistryFailed, match="no login was sent"):
            manifest(asked)

        assert thief.heard == []


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_the_storage_that_a_registry_leads_to_gets_no_login(secure: Callable[..., FakeRegistry], kind: str) -> None:
    asked, storage = secure(kind), secure("bearer", address="127.0.0.3")
    asked.elsewhere = storage.url
    with pytest.raises(RegistryFailed, match=f"GET {storage.url}/v2/x/manifests/1: 401 who are you[?]$"):
        manifest(asked)
    assert storage.heard == []

    storage.login = ""
    assert manifest(asked).startswith("sha256:")
    assert storage.heard == []


@pytest.mark.parametrize("wants", ["", "basic", "bearer"])
def test_an_upload_to_another_host_goes_there_without_the_login(
    secure: Callable[..., FakeRegistry], wants: str
) -> None:
    asked, storage = secure("basic"), secure(wants, address="127.0.0.3")
    with Repository(f"{asked.host}/x") as repository:
        repository.manifest("1")
        asked.uploads = storage.url
        if wants:
            with pytest.raises(RegistryFailed, match=r"PUT .*: 401"):
                repository.put_blob(b"{1}", "text/plain")
        else:
            repository.put_blob(b"{1}", "text/plain")

    assert storage.heard == []
    assert list(storage.blobs.values()) == ([] if wants else [b"{1}"])


def test_a_registry_over_https_does_not_lead_to_http(secure: Callable[..., FakeRegistry]) -> None:
    asked = secure()
    with running() as plain:
        plain.keep("1", SUBJECT, DOCKER_MANIFEST)
        asked.elsewhere = plain.url
        with pytest.raises(RegistryFailed, match=f"over https and leads to {plain.url}/v2/x/manifests/1"):
            manifest(asked)

        assert plain.asked == []


@pytest.mark.parametrize(
    ("challenge", "words"),
    [
        ("Bearer", "wants a token of 'nobody'"),
        ('Bearer service="fake"', "wants a token of 'nobody'"),
        ('Bearer realm="file:///etc/passwd"', "no address over https"),
        ('Bearer realm="https://["', "names an address that is none"),
        ('Bearer realm="https:///token"', "no address over https"),
    ],
)
def test_a_challenge_without_a_usable_realm_is_said(challenge: str, words: str) -> None:
    with running("bearer") as server:
        server.challenge = challenge
        with pytest.raises(RegistryFailed, match=re.escape(words)):
            manifest(server)


@pytest.mark.parametrize(
    "answer", [b"no json", b"[]", b'{"token": "a\\nb"}', b'{"token": 1}', b"{}", b'{"token": "\xc3\xa9"}']
)
def test_a_token_that_is_none_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    with running("bearer") as server:
        log_in(tmp_path, server.host)
        monkeypatch.setattr(fake_registry, "TOKEN", answer)
        with pytest.raises(RegistryFailed, match=r"gave (no|a) token"):
            manifest(server)


def test_no_more_is_taken_of_an_answer_than_a_manifest_may_have(tmp_path: Path) -> None:
    with running("bearer") as server:
        server.keep("1", SUBJECT, DOCKER_MANIFEST)
        log_in(tmp_path, server.host)
        server.padding = b" " * (client.LIMIT + 1)
        with pytest.raises(RegistryFailed, match=r"/token.* gives more than 4194304 bytes"):
            manifest(server)
        server.login = ""
        with pytest.raises(RegistryFailed, match=r"/manifests/1 gives more than 4194304 bytes"):
            manifest(server)


def test_no_login_comes_from_a_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("default login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with running() as server:
        server.keep("1", SUBJECT, DOCKER_MANIFEST)
        with Repository(f"{server.host}/x") as repository:
            repository.session.trust_env = True
            referrers.image(repository, "1")

        assert server.heard == []
