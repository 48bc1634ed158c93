"""Client of a registry: docker's logins, digests, redirects, limits, and attachments that are not sent twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from images.errors import AccessDenied, NotTrusted, RegistryFailed
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
def test_registry_url_follows_the_engine_settings(name: str, url: str) -> None:
    with Repository(name) as repository:
        assert repository.url == url


def test_attachment_is_returned_and_attaching_again_sends_nothing(server: FakeRegistry, repository: Repository) -> None:
    subject = referrers.find_image(repository, "1")
    referrers.attach(repository, subject, SBOM, b"{1}")
    server.requests.clear()
    kept = referrers.attach(repository, subject, SBOM, b"{1}")

    assert [each for each in server.requests if not each.startswith(("GET", "HEAD"))] == []
    assert referrers.fetch(repository, subject, SBOM) == b"{1}"
    assert server.manifests[f"{subject.digest.replace(':', '-')}.sbom"] == (OCI_MANIFEST, kept.content)
    assert kept.parsed["subject"]["digest"] == subject.digest
    assert kept.parsed["layers"][0]["mediaType"] == "text/spdx+json"


def test_attachment_replaces_the_previous_one(repository: Repository) -> None:
    subject = referrers.find_image(repository, "1")
    for content in (b"{1}", b"{2}"):
        referrers.attach(repository, subject, SBOM, content)

    assert referrers.fetch(repository, subject, SBOM) == b"{2}"


def test_missing_image_and_missing_attachment_fail(repository: Repository) -> None:
    with pytest.raises(NotTrusted, match=r"verl\.cpu has no 2; push it with `invoke push`"):
        referrers.find_image(repository, "2")
    with pytest.raises(NotTrusted, match=r"verl.cpu@sha256:[0-9a-f]{64} has no SBOM; `invoke push` attaches it"):
        referrers.fetch(repository, referrers.find_image(repository, "1"), SBOM)


def test_index_of_several_platforms_fails(server: FakeRegistry, repository: Repository) -> None:
    both = [{"digest": f"sha256:{arch}", "platform": {"architecture": arch}} for arch in ("amd64", "arm64")]
    server.keep("several", json.dumps({"manifests": both}).encode(), INDEXES[0])

    with pytest.raises(NotTrusted, match="several platforms under several; pass the digest of one"):
        referrers.find_image(repository, "several")


def test_index_of_one_image_and_attestations_is_that_image(server: FakeRegistry, repository: Repository) -> None:
    one = {"digest": referrers.find_image(repository, "1").digest, "platform": {"architecture": "amd64"}}
    attestation = {"digest": "sha256:0", "platform": {"architecture": "unknown"}}
    digest = server.keep("index", json.dumps({"manifests": [one, attestation]}).encode(), INDEXES[0])

    subject = referrers.find_image(repository, "index")

    assert subject.digest == digest
    assert referrers.image_ids(repository, subject) == {digest, "sha256:" + "c" * 64}


def test_attachment_of_another_image_is_refused(server: FakeRegistry, repository: Repository) -> None:
    first = referrers.find_image(repository, "1")
    theirs = referrers.attach(repository, first, SBOM, b"{1}")
    other = server.keep("other", SUBJECT + b" ", DOCKER_MANIFEST)
    server.keep(referrers.tag(other, SBOM), theirs.content, OCI_MANIFEST)

    with pytest.raises(NotTrusted, match=f"is attached to another image, {first.digest}"):
        referrers.fetch(repository, referrers.find_image(repository, "other"), SBOM)


def test_attachment_of_another_kind_is_refused(server: FakeRegistry, repository: Repository) -> None:
    subject = referrers.find_image(repository, "1")
    empty = json.dumps({"layers": [], "subject": {"digest": subject.digest}}).encode()
    server.keep(referrers.tag(subject.digest, SBOM), empty, OCI_MANIFEST)

    with pytest.raises(NotTrusted, match="has no SBOM"):
        referrers.fetch(repository, subject, SBOM)


def test_bytes_with_another_digest_are_refused(server: FakeRegistry, repository: Repository) -> None:
    subject = referrers.find_image(repository, "1")
    layer = referrers.attach(repository, subject, SBOM, b"{1}").parsed["layers"][0]["digest"]
    server.blobs[layer] = b"{2}"
    server.manifests[subject.digest] = (DOCKER_MANIFEST, b"{}")

    with pytest.raises(RegistryFailed, match="sent other bytes for blob"):
        referrers.fetch(repository, subject, SBOM)
    with pytest.raises(RegistryFailed, match="sent a manifest with digest"):
        repository.manifest(subject.digest)


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_login_of_docker_is_used(tmp_path: Path, kind: str) -> None:
    with running(login=kind) as server:
        server.keep("1", SUBJECT, DOCKER_MANIFEST)
        log_in(tmp_path, server.host)
        with Repository(f"{server.host}/x") as repository:
            subject = referrers.find_image(repository, "1")
            referrers.attach(repository, subject, SBOM, b"{1}")

            assert referrers.fetch(repository, subject, SBOM) == b"{1}"


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_error_without_login_names_docker_login(kind: str) -> None:
    with (
        running(login=kind) as server,
        Repository(f"{server.host}/x") as repository,
        pytest.raises(RegistryFailed, match=f"401 who are you.*`docker login {server.host}` first"),
    ):
        repository.manifest("1")


def test_unreachable_registry_fails() -> None:
    with Repository("127.0.0.1:1/x") as repository, pytest.raises(RegistryFailed, match="does not answer"):
        repository.manifest("1")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.crt, and server.pem with the key, for 127.0.0.2 and 127.0.0.3, which the client reaches over TLS."""
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
    """Start registries over TLS with a CA that docker has; docker has a login for the first one."""
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


def fetch_digest(server: FakeRegistry) -> str:
    with Repository(f"{server.host}/x") as repository:
        return referrers.find_image(repository, "1").digest


def test_token_service_over_https_on_another_host_gets_the_login(secure: Callable[..., FakeRegistry]) -> None:
    registry, tokens = secure("bearer"), secure(address="127.0.0.3")
    registry.challenge = f'Bearer realm="{tokens.url}/token",service="fake",scope="repository:x:pull"'

    assert fetch_digest(registry).startswith("sha256:")
    assert tokens.authorizations == [f"/token Basic {PAIR}"]
    assert set(registry.authorizations) == {"/v2/x/manifests/1 Bearer let-in"}


def test_token_service_over_http_gets_no_login_for_a_registry_over_https(secure: Callable[..., FakeRegistry]) -> None:
    registry = secure("bearer")
    with running() as thief:
        registry.challenge = f'Bearer realm="{thief.url}/token",service="fake"'
        with pytest.raises(RegistryFailed, match=rf"'{thief.url}/token' .*, which is not an https URL; no login"):
            fetch_digest(registry)

        assert thief.authorizations == registry.authorizations == []


def test_registry_over_http_may_name_only_its_own_host_as_token_service(tmp_path: Path) -> None:
    with running("bearer") as registry, running(address="127.0.0.3") as thief:
        log_in(tmp_path, registry.host)
        registry.challenge = f'Bearer realm="{thief.url}/token"'
        with pytest.raises(RegistryFailed, match="no login was sent"):
            fetch_digest(registry)

        assert thief.authorizations == []


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_storage_behind_a_redirect_gets_no_login(secure: Callable[..., FakeRegistry], kind: str) -> None:
    registry, storage = secure(kind), secure("bearer", address="127.0.0.3")
    registry.elsewhere = storage.url
    with pytest.raises(RegistryFailed, match=f"GET {storage.url}/v2/x/manifests/1: 401 who are you[?]$"):
        fetch_digest(registry)
    assert storage.authorizations == []

    storage.login = ""
    assert fetch_digest(registry).startswith("sha256:")
    assert storage.authorizations == []


@pytest.mark.parametrize("demanded", ["", "basic", "bearer"])
def test_upload_to_another_host_sends_no_login(secure: Callable[..., FakeRegistry], demanded: str) -> None:
    registry, storage = secure("basic"), secure(demanded, address="127.0.0.3")
    with Repository(f"{registry.host}/x") as repository:
        repository.manifest("1")
        registry.uploads = storage.url
        if demanded:
            with pytest.raises(RegistryFailed, match=r"PUT .*: 401"):
                repository.put_blob(b"{1}", "text/plain")
        else:
            repository.put_blob(b"{1}", "text/plain")

    assert storage.authorizations == []
    assert list(storage.blobs.values()) == ([] if demanded else [b"{1}"])


def test_redirect_from_https_to_http_is_refused(secure: Callable[..., FakeRegistry]) -> None:
    registry = secure()
    with running() as plain:
        plain.keep("1", SUBJECT, DOCKER_MANIFEST)
        registry.elsewhere = plain.url
        with pytest.raises(RegistryFailed, match=f"uses https and points to {plain.url}/v2/x/manifests/1"):
            fetch_digest(registry)

        assert plain.requests == []


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        ("Bearer", "names '' as its token service"),
        ('Bearer service="fake"', "names '' as its token service"),
        ('Bearer realm="file:///etc/passwd"', "not an https URL"),
        ('Bearer realm="https://["', "sent an invalid URL"),
        ('Bearer realm="https:///token"', "not an https URL"),
    ],
)
def test_challenge_without_a_valid_realm_fails(challenge: str, message: str) -> None:
    with running("bearer") as server:
        server.challenge = challenge
        with pytest.raises(RegistryFailed, match=re.escape(message)):
            fetch_digest(server)


@pytest.mark.parametrize(
    "answer", [b"no json", b"[]", b'{"token": "a\\nb"}', b'{"token": 1}', b"{}", b'{"token": "\xc3\xa9"}']
)
def test_invalid_token_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    with running("bearer") as server:
        log_in(tmp_path, server.host)
        monkeypatch.setattr(fake_registry, "TOKEN", answer)
        with pytest.raises(RegistryFailed, match=r"sent (no|a) token"):
            fetch_digest(server)


def test_response_above_the_limit_is_not_read(tmp_path: Path) -> None:
    with running("bearer") as server:
        server.keep("1", SUBJECT, DOCKER_MANIFEST)
        log_in(tmp_path, server.host)
        server.padding = b" " * (client.LIMIT + 1)
        with pytest.raises(RegistryFailed, match=r"/token.* sends more than 4194304 bytes"):
            fetch_digest(server)
        server.login = ""
        with pytest.raises(RegistryFailed, match=r"/manifests/1 sends more than 4194304 bytes"):
            fetch_digest(server)


def test_no_login_is_read_from_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("default login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with running() as server:
        server.keep("1", SUBJECT, DOCKER_MANIFEST)
        with Repository(f"{server.host}/x") as repository:
            repository.session.trust_env = True
            referrers.find_image(repository, "1")

        assert server.authorizations == []


def test_tags_are_read_from_all_pages(server: FakeRegistry, repository: Repository) -> None:
    assert repository.tags() == ["1"]
    for number in range(2, 6):
        server.keep(str(number), SUBJECT, DOCKER_MANIFEST)
    server.page = 2

    assert repository.tags() == ["1", "2", "3", "4", "5"]


def test_tags_of_a_missing_repository_are_none(server: FakeRegistry, repository: Repository) -> None:
    server.manifests.clear()

    assert repository.tags() == []


def test_endless_list_of_tags_is_not_read_to_the_end(
    server: FakeRegistry, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.page = 1
    for number in range(2, 6):
        server.keep(str(number), SUBJECT, DOCKER_MANIFEST)
    monkeypatch.setattr(client, "PAGES", 3)

    with pytest.raises(RegistryFailed, match="more than 3 pages of tags"):
        repository.tags()


@pytest.mark.parametrize("login", ["basic", "bearer"])
def test_anonymous_client_sends_no_login(server: FakeRegistry, tmp_path: Path, login: str) -> None:
    server.login = login
    log_in(tmp_path, server.host)

    repository = Repository(f"{server.host}/team/verl.cpu", anonymous=True)
    with repository, pytest.raises(AccessDenied, match="docker login"):
        repository.manifest("1")
    assert server.authorizations == []
