"""Signatures with real keys in a registry in memory; cosign is a stand-in that logs its calls.

recorded/cosign has what `cosign sign` of Debian's 2.5.0 and 3.1.1 left in a real registry.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from images.errors import CommandFailed, ImageError, NotTrusted
from images.host.process import run
from images.provenance import signing
from images.registry import client, referrers
from images.registry.client import DOCKER_MANIFEST, OCI_MANIFEST, Manifest, Repository
from images.registry.referrers import PROVENANCE, SBOM, SIGNATURE
from tests.support.images.fake_registry import SUBJECT, FakeRegistry
from tests.support.paths import RECORDED

STATED = {SBOM: b"{1}", PROVENANCE: b"{2}"}
COSIGNS = RECORDED / "cosign"


@pytest.fixture(scope="module", params=["EC", "RSA"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A private and a public key in PEM."""
    return make(tmp_path_factory.mktemp("keys"), request.param)


def make(folder: Path, kind: str = "EC", *cipher: str) -> tuple[Path, Path]:
    option = {"EC": "ec_paramgen_curve:P-256", "RSA": "rsa_keygen_bits:2048"}[kind]
    private, public = folder / "key.pem", folder / "key.pub"
    run(["openssl", "genpkey", "-algorithm", kind, "-pkeyopt", option, *cipher, "-out", str(private)])
    password = ["-passin", cipher[-1]] if cipher else []
    run(["openssl", "pkey", "-in", str(private), *password, "-pubout", "-out", str(public)])
    return private, public


@pytest.fixture
def subject(repository: Repository) -> Manifest:
    return referrers.find_image(repository, "1")


def test_public_key_confirms_a_signature(repository: Repository, subject: Manifest, pair: tuple[Path, Path]) -> None:
    private, public = pair
    assert signing.check(repository, subject, None, STATED) == "not signed"

    signing.sign(repository, subject, private, STATED)

    assert signing.check(repository, subject, public, STATED) == f"signed by the owner of {public}"
    assert signing.check(repository, subject, None, STATED) == "signed, key not checked"


def test_signing_again_sends_nothing(
    server: FakeRegistry, repository: Repository, subject: Manifest, pair: tuple[Path, Path]
) -> None:
    signing.sign(repository, subject, pair[0], STATED)
    server.requests.clear()
    signing.sign(repository, subject, pair[0], STATED)

    assert [each for each in server.requests if not each.startswith(("GET", "HEAD"))] == []


def test_password_of_a_key_is_read_from_the_environment(
    repository: Repository, subject: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = make(tmp_path, "EC", "-aes-256-cbc", "-pass", "pass:hunter2")
    monkeypatch.setenv("VERLJOB_KEY_PASSWORD", "hunter2")

    signing.sign(repository, subject, private, STATED)

    assert signing.check(repository, subject, public, STATED).startswith("signed")


def test_another_key_does_not_confirm(repository: Repository, subject: Manifest, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    private, _ = make(tmp_path)
    _, other = make(tmp_path / "other")
    signing.sign(repository, subject, private, STATED)

    with pytest.raises(NotTrusted, match=f"has no signature of {other}; sign with `invoke push --key`"):
        signing.check(repository, subject, other, STATED)


def test_two_keys_sign_the_same_statements(repository: Repository, subject: Manifest, tmp_path: Path) -> None:
    pairs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        pairs.append(make(tmp_path / name))
        signing.sign(repository, subject, pairs[-1][0], STATED)

    for _, public in pairs:
        assert signing.check(repository, subject, public, STATED).startswith("signed")


def test_statements_replaced_after_signing_are_refused(
    repository: Repository, subject: Manifest, pair: tuple[Path, Path]
) -> None:
    signing.sign(repository, subject, pair[0], STATED)

    with pytest.raises(NotTrusted, match="for other statements than the attached ones"):
        signing.check(repository, subject, pair[1], {**STATED, SBOM: b"{3}"})


def test_signature_of_another_image_is_refused(
    server: FakeRegistry, repository: Repository, subject: Manifest, pair: tuple[Path, Path]
) -> None:
    signing.sign(repository, subject, pair[0], STATED)
    other = server.keep("other", SUBJECT + b" ", DOCKER_MANIFEST)
    theirs = {**signature_manifest(repository, subject), "subject": {"digest": other}}
    repository.put_manifest(referrers.tag(other, SIGNATURE), theirs)

    with pytest.raises(NotTrusted, match="is for another image"):
        signing.check(repository, referrers.find_image(repository, "other"), pair[1], STATED)


def signature_manifest(repository: Repository, subject: Manifest) -> dict[str, object]:
    kept = repository.manifest(referrers.tag(subject.digest, SIGNATURE))
    assert kept
    return kept.parsed


@pytest.mark.parametrize("annotations", [{}, {signing.ANNOTATION: "bm90aGluZw=="}])
def test_unsigned_payload_is_ignored(
    repository: Repository, subject: Manifest, pair: tuple[Path, Path], annotations: dict[str, str]
) -> None:
    referrers.attach(repository, subject, SIGNATURE, b"{}", annotations=annotations)

    with pytest.raises(NotTrusted, match="has no signature of"):
        signing.check(repository, subject, pair[1], STATED)


def test_file_that_is_no_key_fails(repository: Repository, subject: Manifest, tmp_path: Path) -> None:
    for act in (signing.sign, signing.check):
        with pytest.raises(CommandFailed, match="openssl pkey"):
            act(repository, subject, tmp_path / "none", STATED)


@pytest.mark.parametrize("version", ["2.5.0", "3.1.1"])
def test_signature_of_a_real_cosign_is_confirmed(server: FakeRegistry, repository: Repository, version: str) -> None:
    server.keep("image", (COSIGNS / "image.json").read_bytes(), DOCKER_MANIFEST)
    image = referrers.find_image(repository, "image")
    server.keep(referrers.tag(image.digest, SIGNATURE), (COSIGNS / f"{version}.json").read_bytes(), OCI_MANIFEST)
    payload = (COSIGNS / f"{version}.payload").read_bytes()
    server.blobs[client.digest_of(payload)] = payload
    stated = {SBOM: b"{}", PROVENANCE: b"[]"}

    assert signing.check(repository, image, COSIGNS / "key.pub", stated).startswith("signed by the owner of")
    with pytest.raises(NotTrusted, match="for other statements"):
        signing.check(repository, image, COSIGNS / "key.pub", STATED)


@pytest.fixture
def cosign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for cosign 2 that computes with openssl, and the log of its calls; its key is the PEM file beside it.

    tests/image/test_cosign.py has the real ones.
    """
    make(tmp_path)
    (tmp_path / "cosign.key").write_text("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "cosign"
    script.write_text(COSIGN.format(folder=tmp_path))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    return tmp_path


COSIGN = """#!/bin/sh
cd {folder}
[ "$2" != --help ] || exec cat help
echo "$*" >> calls
case $1 in
    public-key) exec cat key.pub ;;
    sign-blob) for payload; do :; done; openssl dgst -sha256 -sign key.pem "$payload" | base64 -w 0 ;;
esac
"""


@pytest.mark.parametrize(
    ("help_text", "flags"),
    [
        ("--tlog-upload=true:", []),
        ("--use-signing-config=true:", ["--use-signing-config=false", "--new-bundle-format=false"]),
    ],
    ids=["cosign 2", "cosign 3"],
)
def test_key_of_cosign_signs_through_cosign_and_only_once(
    server: FakeRegistry, repository: Repository, cosign: Path, help_text: str, flags: list[str]
) -> None:
    subject = referrers.find_image(repository, "1")
    (cosign / "help").write_text(help_text)

    signing.sign(repository, subject, cosign / "cosign.key", STATED)
    server.requests.clear()
    signing.sign(repository, subject, cosign / "cosign.key", STATED)

    assert [each for each in server.requests if not each.startswith(("GET", "HEAD"))] == []
    assert signing.check(repository, subject, cosign / "key.pub", STATED).startswith("signed by the owner of")
    (argv,) = [line.split() for line in (cosign / "calls").read_text().splitlines() if line.startswith("sign-blob")]
    assert argv[:-1] == ["sign-blob", "--yes", "--tlog-upload=false", *flags, "--key", str(cosign / "cosign.key")]


def test_key_of_cosign_without_cosign_fails_and_names_the_package(
    repository: Repository, subject: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cosign.key").write_text("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ImageError, match=r"not on PATH: install cosign 2.5 or newer \(`apt-get install cosign`"):
        signing.sign(repository, subject, tmp_path / "cosign.key", STATED)


@pytest.mark.parametrize(("version", "name"), [("2.5.0", "sb2"), ("3.1.1", "sb3")])
def test_payload_is_the_one_that_cosign_signs(version: str, name: str) -> None:
    digest = client.digest_of((COSIGNS / "image.json").read_bytes())

    payload = signing._payload(f"127.0.0.1:5999/lead/{name}", digest, {SBOM: b"{}", PROVENANCE: b"[]"})

    assert payload == (COSIGNS / f"{version}.payload").read_bytes()
