"""Signing with real keys, on a registry in memory; cosign is a stand-in that notes how it is called.

What Debian's cosign 2.5.0 and 3.1.1 left in a real registry when `sign` called them is in recorded/cosign; both also
verified what openssl had signed.
"""

from __future__ import annotations

import os
import stat
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
    """A private and a public key, as openssl and cosign know them."""
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
    return referrers.image(repository, "1")


def test_what_a_key_signed_its_public_half_confirms(
    repository: Repository, subject: Manifest, pair: tuple[Path, Path]
) -> None:
    private, public = pair
    assert signing.told(repository, subject, None, STATED) == "not signed"

    signing.sign(repository, subject, private, STATED)

    assert signing.told(repository, subject, public, STATED) == f"signed by the owner of {public}"
    assert signing.told(repository, subject, None, STATED) == "signed, by whom was not asked"


def test_to_sign_the_same_again_sends_nothing(
    server: FakeRegistry, repository: Repository, subject: Manifest, pair: tuple[Path, Path]
) -> None:
    signing.sign(repository, subject, pair[0], STATED)
    server.asked.clear()
    signing.sign(repository, subject, pair[0], STATED)

    assert [each for each in server.asked if not each.startswith(("GET", "HEAD"))] == []


def test_a_key_with_a_password_has_it_from_the_environment(
    repository: Repository, subject: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = make(tmp_path, "EC", "-aes-256-cbc", "-pass", "pass:hunter2")
    monkeypatch.setenv("VERLJOB_KEY_PASSWORD", "hunter2")

    signing.sign(repository, subject, private, STATED)

    assert signing.told(repository, subject, public, STATED).startswith("signed")


def test_another_key_did_not_sign(repository: Repository, subject: Manifest, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    private, _ = make(tmp_path)
    _, other = make(tmp_path / "other")
    signing.sign(repository, subject, private, STATED)

    with pytest.raises(NotTrusted, match=f"has no signature of {other}; `invoke push --key` signs"):
        signing.told(repository, subject, other, STATED)


def test_two_keys_may_sign_the_same_statements(repository: Repository, subject: Manifest, tmp_path: Path) -> None:
    pairs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        pairs.append(make(tmp_path / name))
        signing.sign(repository, subject, pairs[-1][0], STATED)

    for _, public in pairs:
        assert signing.told(repository, subject, public, STATED).startswith("signed")


def test_statements_that_were_exchanged_after_signing_are_refused(
    repository: Repository, subject: Manifest, pair: tuple[Path, Path]
) -> None:
    signing.sign(repository, subject, pair[0], STATED)

    with pytest.raises(NotTrusted, match="for other statements than those that are attached"):
        signing.told(repository, subject, pair[1], {**STATED, SBOM: b"{3}"})


def test_a_signature_of_another_image_is_refused(
    server: FakeRegistry, repository: Repository, subject: Manifest, pair: tuple[Path, Path]
) -> None:
    signing.sign(repository, subject, pair[0], STATED)
    other = server.keep("other", SUBJECT + b" ", DOCKER_MANIFEST)
    theirs = {**attachments_of(repository, subject), "subject": {"digest": other}}
    repository.put_manifest(referrers.tag(other, SIGNATURE), theirs)

    with pytest.raises(NotTrusted, match="is for another image"):
        signing.told(repository, referrers.image(repository, "other"), pair[1], STATED)


def attachments_of(repository: Repository, subject: Manifest) -> dict[str, object]:
    kept = repository.manifest(referrers.tag(subject.digest, SIGNATURE))
    assert kept
    return kept.parts


@pytest.mark.parametrize("notes", [{}, {signing.ANNOTATION: "bm90aGluZw=="}])
def test_a_payload_that_nobody_signed_is_none(
    repository: Repository, subject: Manifest, pair: tuple[Path, Path], notes: dict[str, str]
) -> None:
    referrers.attach(repository, subject, SIGNATURE, b"{}", notes=notes)

    with pytest.raises(NotTrusted, match="has no signature of"):
        signing.told(repository, subject, pair[1], STATED)


def test_a_file_that_is_no_key_is_said(repository: Repository, subject: Manifest, tmp_path: Path) -> None:
    for act in (signing.sign, signing.told):
        with pytest.raises(CommandFailed, match="openssl pkey"):
            act(repository, subject, tmp_path / "none", STATED)


@pytest.mark.parametrize("version", ["2.5.0", "3.1.1"])
def test_what_a_real_cosign_signed_its_key_confirms(server: FakeRegistry, repository: Repository, version: str) -> None:
    server.keep("image", (COSIGNS / "image.json").read_bytes(), DOCKER_MANIFEST)
    image = referrers.image(repository, "image")
    server.keep(referrers.tag(image.digest, SIGNATURE), (COSIGNS / f"{version}.json").read_bytes(), OCI_MANIFEST)
    payload = (COSIGNS / f"{version}.payload").read_bytes()
    server.blobs[client.digest_of(payload)] = payload
    stated = {SBOM: b"{}", PROVENANCE: b"[]"}

    assert signing.told(repository, image, COSIGNS / "key.pub", stated).startswith("signed by the owner of")
    with pytest.raises(NotTrusted, match="for other statements"):
        signing.told(repository, image, COSIGNS / "key.pub", STATED)


@pytest.mark.parametrize(
    ("told", "more"),
    [
        ("--tlog-upload=true:", []),
        ("--use-signing-config=true:", ["--use-signing-config=false", "--new-bundle-format=false"]),
    ],
    ids=["cosign 2", "cosign 3"],
)
def test_a_key_of_cosigns_is_left_to_cosign(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, more: list[str]
) -> None:
    subject = referrers.image(repository, "1")
    key, cosign = tmp_path / "cosign.key", tmp_path / "cosign"
    key.write_text("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n")
    cosign.write_text(f'#!/bin/sh\n[ "$2" != --help ] || exec echo "{told}"\necho "$*" > {tmp_path}/said\n')
    cosign.chmod(cosign.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    with pytest.raises(ImageError, match=r"cosign left no signature at .*\.sig; cosign 2.5 and 3.1 do"):
        signing.sign(repository, subject, key, STATED)
    signing.sign(repository, subject, make(tmp_path)[0], STATED)  # now there is one
    signing.sign(repository, subject, key, STATED)

    said = (tmp_path / "said").read_text().split()
    assert said[:3] == ["sign", "--key", str(key)]
    assert said[-1] == f"{repository.name}@{subject.digest}"
    assert f"sbom={client.digest_of(b'{1}')}" in said
    assert "--tlog-upload=false" in said
    assert [word for word in said if "config" in word or "bundle" in word] == more
