"""Signatures of an image and its statements with a key, in cosign's format.

Format: https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md. The digests of the statements are the
payload's optional annotations, so one signature covers the image and all of them. Nothing goes to a transparency log.

cosign and openssl only compute; images/registry/client.py does every request, under its rules for logins. openssl
stays for keys in PEM: Debian 13's cosign 2.5.0 imports no EC or RSA key, no cosign imports one with a password, and
`invoke image.verify` needs no cosign.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from images.errors import CommandFailed, ImageError, NotTrusted
from images.host.process import run
from images.registry import referrers
from images.registry.client import Manifest, Repository, digest_of
from images.registry.referrers import SIGNATURE, Kind

ANNOTATION = "dev.cosignproject.cosign/signature"
COSIGN_KEYS = (b"-----BEGIN ENCRYPTED SIGSTORE", b"-----BEGIN ENCRYPTED COSIGN")
TYPE = "cosign container image signature"
PASSWORD = "VERLJOB_KEY_PASSWORD"  # noqa: S105  the variable's name


def sign(repository: Repository, subject: Manifest, key: Path, statements: Mapping[Kind, bytes]) -> None:
    """Sign the image and its statements with a private key, unless the same signature is already attached.

    Passwords come from the environment: COSIGN_PASSWORD for a key made by cosign, VERLJOB_KEY_PASSWORD for one in PEM.
    """
    payload = _payload(repository.name, subject.digest, statements)
    with tempfile.TemporaryDirectory(prefix="verljob-sign-") as folder:
        public, file = Path(folder) / "key.pub", Path(folder) / "payload"
        public.write_text(public_key(key))
        if payload in _signed_payloads(repository, subject, public):
            return
        file.write_bytes(payload)
        notes = {ANNOTATION: _signature(key, file)}
        others = referrers.layers(repository, subject, SIGNATURE)  # of other keys, kept if over the same payload
        kept = [layer for layer in others if layer["digest"] == digest_of(payload)]
        referrers.attach(repository, subject, SIGNATURE, payload, annotations=notes, kept=kept)


def check(repository: Repository, subject: Manifest, key: Path | None, statements: Mapping[Kind, bytes]) -> str:
    """Describe the signature; with a public ``key`` raise NotTrusted unless its owner signed these statements."""
    if key is None:
        signed = referrers.layers(repository, subject, SIGNATURE)
        return "signed, key not checked" if signed else "not signed"
    name = f"{repository.name}@{subject.digest}"
    payloads = [json.loads(payload) for payload in _signed_payloads(repository, subject, key)]
    if not payloads:
        raise NotTrusted(f"{name} has no signature of {key}; sign with `invoke push --key`")
    own = [each for each in payloads if each["critical"]["image"]["docker-manifest-digest"] == subject.digest]
    if not own:
        raise NotTrusted(f"{name}: the signature of {key} is for another image")
    if not any(_digests(statements).items() <= (each["optional"] or {}).items() for each in own):
        raise NotTrusted(f"{name}: the signature of {key} is for other statements than the attached ones")
    return f"signed by the owner of {key}"


def _payload(name: str, digest: str, statements: Mapping[Kind, bytes]) -> bytes:
    """Byte for byte what `cosign sign --annotations` signs, so that both recognize each other's signatures."""
    critical = {"identity": {"docker-reference": name}, "image": {"docker-manifest-digest": digest}, "type": TYPE}
    content = {"critical": critical, "optional": _digests(statements)}
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()


def _digests(statements: Mapping[Kind, bytes]) -> dict[str, str]:
    """Digests of statements, as annotations of a signature."""
    return {kind.suffix: digest_of(content) for kind, content in statements.items()}


def _signed_payloads(repository: Repository, subject: Manifest, key: Path) -> list[bytes]:
    """Return the attached payloads with a valid signature of a public key."""
    run(["openssl", "pkey", "-pubin", "-in", str(key), "-noout"])
    payloads = []
    with tempfile.TemporaryDirectory(prefix="verljob-check-") as folder:
        payload, signature = Path(folder) / "payload", Path(folder) / "signature"
        for layer in referrers.layers(repository, subject, SIGNATURE):
            payload.write_bytes(repository.blob(layer["digest"]))
            signature.write_bytes(base64.b64decode(layer.get("annotations", {}).get(ANNOTATION, "")))
            try:
                run(["openssl", "dgst", "-sha256", "-verify", str(key), "-signature", str(signature), str(payload)])
            except CommandFailed:  # another key's signature, or none: the key itself was read above
                continue
            payloads.append(payload.read_bytes())
    return payloads


def public_key(key: Path) -> str:
    """Return the public key of a private one, in PEM."""
    if _is_cosign_key(key):
        return _cosign("public-key", "--key", str(key))
    return run(["openssl", "pkey", "-in", str(key), *_password(), "-pubout"])


def _signature(key: Path, payload: Path) -> str:
    """Sign the file ``payload``, and return the signature in base64."""
    if _is_cosign_key(key):
        # cosign 3 prints a plain signature, and needs no log, only with two flags that cosign 2 does not have.
        flags = ["--use-signing-config=false", "--new-bundle-format=false"]
        flags = flags if "--use-signing-config" in _cosign("sign-blob", "--help") else []
        return _cosign("sign-blob", "--yes", "--tlog-upload=false", *flags, "--key", str(key), str(payload)).strip()
    signature = payload.with_name("signature")
    run(["openssl", "dgst", "-sha256", "-sign", str(key), *_password(), "-out", str(signature), str(payload)])
    return base64.b64encode(signature.read_bytes()).decode()


def _is_cosign_key(key: Path) -> bool:
    return key.is_file() and key.read_bytes().startswith(COSIGN_KEYS)


def _password() -> list[str]:
    """Flags of openssl, which prompts for a password that the variable does not have."""
    return ["-passin", f"env:{PASSWORD}"] if os.environ.get(PASSWORD) else []


def _cosign(*arguments: str) -> str:
    if not shutil.which("cosign"):
        raise ImageError(
            "the key was made by cosign, which is not on PATH: install cosign 2.5 or newer (`apt-get install cosign` "
            "on Debian 13, or https://github.com/sigstore/cosign/releases), or sign with an EC or RSA key in PEM"
        )
    return run(["cosign", *arguments])
