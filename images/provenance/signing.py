"""Signatures of images and statements with a key, in cosign's format.

https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md says what is signed and where it lies; the digests
of the statements are its optional annotations, so that the one signature covers all. openssl signs with a key of its
own kind (EC or RSA, PEM), cosign with a key that cosign made. Nothing goes to a transparency log.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from images.errors import CommandFailed, ImageError, NotTrusted
from images.host.process import run
from images.registry import referrers
from images.registry.client import Manifest, Repository, digest_of
from images.registry.referrers import SIGNATURE, Kind

ANNOTATION = "dev.cosignproject.cosign/signature"
OF_COSIGN = (b"-----BEGIN ENCRYPTED SIGSTORE", b"-----BEGIN ENCRYPTED COSIGN")
TYPE = "cosign container image signature"
PASSWORD = "VERLJOB_KEY_PASSWORD"  # noqa: S105  the variable's name


def sign(repository: Repository, subject: Manifest, key: Path, stated: Mapping[Kind, bytes]) -> None:
    """Sign the image and its statements with a private key, unless it has signed just these already."""
    by = _by_cosign if key.is_file() and key.read_bytes().startswith(OF_COSIGN) else _by_openssl
    by(repository, subject, key, covered(stated))


def covered(stated: Mapping[Kind, bytes]) -> dict[str, str]:
    """The digests of statements, as a signature names them."""
    return {kind.ending: digest_of(content) for kind, content in stated.items()}


def told(repository: Repository, subject: Manifest, key: Path | None, stated: Mapping[Kind, bytes]) -> str:
    """Whether it is signed; with a public ``key`` NotTrusted unless its owner signed these very statements."""
    if key is None:
        there = referrers.layers(repository, subject, SIGNATURE)
        return "signed, by whom was not asked" if there else "not signed"
    named = f"{repository.name}@{subject.digest}"
    payloads = _signed(repository, subject, key)
    if not payloads:
        raise NotTrusted(f"{named} has no signature of {key}; `invoke push --key` signs")
    said = [json.loads(payload) for payload in payloads]
    about = [each for each in said if each["critical"]["image"]["docker-manifest-digest"] == subject.digest]
    if not about:
        raise NotTrusted(f"{named}: the signature of {key} is for another image")
    if not any(covered(stated).items() <= (each["optional"] or {}).items() for each in about):
        raise NotTrusted(f"{named}: the signature of {key} is for other statements than those that are attached")
    return f"signed by the owner of {key}"


def _signed(repository: Repository, subject: Manifest, key: Path) -> list[bytes]:
    """The attached payloads that a public key's owner signed."""
    run(["openssl", "pkey", "-pubin", "-in", str(key), "-noout"])
    payloads = []
    with tempfile.TemporaryDirectory(prefix="verljob-check-") as folder:
        text, signature = Path(folder) / "payload", Path(folder) / "signature"
        for layer in referrers.layers(repository, subject, SIGNATURE):
            text.write_bytes(repository.blob(layer["digest"]))
            signature.write_bytes(base64.b64decode(layer.get("annotations", {}).get(ANNOTATION, "")))
            try:
                run(["openssl", "dgst", "-sha256", "-verify", str(key), "-signature", str(signature), str(text)])
            except CommandFailed:  # another key's, or nobody's: this key can be read
                continue
            payloads.append(text.read_bytes())
    return payloads


def _by_openssl(repository: Repository, subject: Manifest, key: Path, notes: Mapping[str, str]) -> None:
    """A key with a password has it in VERLJOB_KEY_PASSWORD, or openssl asks for it."""
    critical = {
        "identity": {"docker-reference": repository.name},
        "image": {"docker-manifest-digest": subject.digest},
        "type": TYPE,
    }
    payload = json.dumps({"critical": critical, "optional": dict(notes)}, separators=(",", ":")).encode()
    password = ["-passin", f"env:{PASSWORD}"] if os.environ.get(PASSWORD) else []
    with tempfile.TemporaryDirectory(prefix="verljob-sign-") as folder:
        public, text, signature = (Path(folder) / name for name in ("key.pub", "payload", "signature"))
        run(["openssl", "pkey", "-in", str(key), *password, "-pubout", "-out", str(public)])
        if payload not in _signed(repository, subject, public):
            text.write_bytes(payload)
            run(["openssl", "dgst", "-sha256", "-sign", str(key), *password, "-out", str(signature), str(text)])
            signed = {ANNOTATION: base64.b64encode(signature.read_bytes()).decode()}
            others = referrers.layers(repository, subject, SIGNATURE)  # other keys' stay, over the same statements
            beside = [each for each in others if each["digest"] == digest_of(payload)]
            referrers.attach(repository, subject, SIGNATURE, payload, notes=signed, beside=beside)


def _by_cosign(repository: Repository, subject: Manifest, key: Path, notes: Mapping[str, str]) -> None:
    """With cosign 2 or 3, which takes the key's password from COSIGN_PASSWORD."""
    words = [word for name, digest in notes.items() for word in ("--annotations", f"{name}={digest}")]
    plain = ["--allow-http-registry"] if repository.url.startswith("http:") else []
    # cosign 3 leaves a bundle elsewhere and asks a transparency log, unless told by flags that cosign 2 lacks. Its
    # help no longer names the second.
    if "--use-signing-config" in run(["cosign", "sign", "--help"]):
        plain += ["--use-signing-config=false", "--new-bundle-format=false"]
    flags = ["--yes", "--tlog-upload=false", *plain, *words]
    run(["cosign", "sign", "--key", str(key), *flags, f"{repository.name}@{subject.digest}"])
    if not referrers.layers(repository, subject, SIGNATURE):
        place = referrers.tag(subject.digest, SIGNATURE)
        raise ImageError(
            f"cosign left no signature at {repository.name}:{place}; cosign 2.5 and 3.1 do, or take a key of openssl's"
        )
