"""launch.sh and signing with Debian's cosign 2 and 3, and registries that are honest, broken or hostile.

The registries are in memory; engine and Slurm are the fakes of the shell tests. No transparency log is queried.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import socketserver
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from images.host.process import run
from images.provenance import signing
from images.registry import client, referrers
from images.registry.client import DOCKER_MANIFEST, OCI_MANIFEST, Repository
from images.registry.referrers import PROVENANCE, SBOM, SIGNATURE
from tests.support.images import debian_cosign
from tests.support.images.fake_registry import PAIR, FakeRegistry, running
from tests.support.images.serving import serving
from tests.support.paths import RECORDED
from tests.support.shell.rig import Rig
from tests.support.shell.step import SUCCESS, last_line

KEPT = RECORDED / "cosign"
NAME = "team/verl.cpu"
CERTIFICATES = Path("/etc/docker/certs.d")
RECORDED_WITH = {"trixie": "2.5.0", "sid": "3.1.1"}


@pytest.fixture(params=debian_cosign.SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cosign(suite: str) -> Path:
    return debian_cosign.ensure(suite)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.fake("step", SUCCESS)
    return rig


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    """A registry with the recorded image as `1`, unsigned."""
    with running() as server:
        add_image(server)
        yield server


def add_image(server: FakeRegistry) -> str:
    return server.keep("1", (KEPT / "image.json").read_bytes(), DOCKER_MANIFEST)


def sign(server: FakeRegistry, version: str = "2.5.0") -> str:
    """Add the recorded image with a recorded signature."""
    digest = add_image(server)
    server.keep(f"{digest.replace(':', '-')}.sig", (KEPT / f"{version}.json").read_bytes(), OCI_MANIFEST)
    payload = (KEPT / f"{version}.payload").read_bytes()
    server.blobs[client.digest_of(payload)] = payload
    return digest


def launch(
    rig: Rig, cosign: Path, image: str, key: Path = KEPT / "key.pub", **variables: str
) -> subprocess.CompletedProcess[str]:
    variables = {"VERLJOB_REQUIRE_SIGNATURE": str(key), "VERLJOB_COSIGN": str(cosign), **variables}
    return rig.launch("cluster", script=None, VERLJOB_IMAGE=image, **variables)


def launched_image(rig: Rig, done: subprocess.CompletedProcess[str]) -> str:
    """The image that every node runs."""
    assert done.returncode == 0, done.stdout + done.stderr
    (image,) = re.findall("^VERLJOB_IMAGE=(.*)$", rig.faked("srun.env"), re.MULTILINE)
    return str(image)


def refusal(rig: Rig, done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stdout + done.stderr
    assert not (rig.root / "fake" / "srun.argv").exists()
    return last_line(done)


@pytest.mark.parametrize("version", RECORDED_WITH.values())
def test_both_versions_verify_signatures_of_both(rig: Rig, cosign: Path, server: FakeRegistry, version: str) -> None:
    digest = sign(server, version)

    for reference in (f"{NAME}:1", f"{NAME}@{digest}", f"{NAME}:1@{digest}"):
        done = launch(rig, cosign, f"{server.host}/{reference}")

        assert launched_image(rig, done) == f"{server.host}/{NAME}@{digest}"


@pytest.fixture(params=["EC", "RSA", "cosign"])
def pair(request: pytest.FixtureRequest, rig: Rig, cosign: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A private and a public key, of openssl or of this cosign, which is on PATH and has the key's password."""
    prefix = rig.root / "key"
    if request.param == "cosign":
        monkeypatch.setenv("PATH", f"{cosign.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("COSIGN_PASSWORD", "hunter2")
        run(["cosign", "generate-key-pair", "--output-key-prefix", str(prefix)])
        return prefix.with_suffix(".key"), prefix.with_suffix(".pub")
    option = {"EC": "ec_paramgen_curve:P-256", "RSA": "rsa_keygen_bits:2048"}[request.param]
    run(["openssl", "genpkey", "-algorithm", request.param, "-pkeyopt", option, "-out", str(prefix)])
    run(["openssl", "pkey", "-in", str(prefix), "-pubout", "-out", f"{prefix}.pub"])
    return prefix, prefix.with_suffix(".pub")


def test_signature_of_invoke_push_is_verified_by_cosign_and_by_invoke(
    rig: Rig, cosign: Path, server: FakeRegistry, pair: tuple[Path, Path]
) -> None:
    statements = {SBOM: b"{}", PROVENANCE: b"[]"}
    with Repository(f"{server.host}/{NAME}") as repository:
        subject = referrers.find_image(repository, "1")
        for _ in range(2):  # the second time it is already signed
            signing.sign(repository, subject, pair[0], statements)
        assert len(referrers.layers(repository, subject, SIGNATURE)) == 1
        assert signing.check(repository, subject, pair[1], statements) == f"signed by the owner of {pair[1]}"

    done = launch(rig, cosign, f"{server.host}/{NAME}:1", pair[1])

    assert launched_image(rig, done) == f"{server.host}/{NAME}@{subject.digest}"


def another_key(server: FakeRegistry, rig: Rig) -> Path:
    sign(server)
    run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(rig.root / "private")])
    run(["openssl", "ec", "-in", str(rig.root / "private"), "-pubout", "-out", str(rig.root / "other.pub")])
    return rig.root / "other.pub"


def another_image(server: FakeRegistry, _: Rig) -> None:
    digest = sign(server)
    other = server.keep("1", (KEPT / "image.json").read_bytes() + b" ", DOCKER_MANIFEST)
    media_type, signature = server.manifests[f"{digest.replace(':', '-')}.sig"]
    server.keep(f"{other.replace(':', '-')}.sig", signature, media_type)


def changed_payload(server: FakeRegistry, rig: Rig) -> None:
    """The signature of another image, its payload now naming this one."""
    another_image(server, rig)
    (payload,) = server.blobs.values()
    (was,) = re.findall(rb"sha256:[0-9a-f]{64}", payload.partition(b'"optional"')[0])
    changed = payload.replace(was, client.digest_of(server.manifests["1"][1]).encode())
    place = f"{client.digest_of(server.manifests['1'][1]).replace(':', '-')}.sig"
    parts = json.loads(server.manifests[place][1])
    parts["layers"][0].update(digest=client.digest_of(changed), size=len(changed))
    server.blobs[client.digest_of(changed)] = changed
    server.keep(place, json.dumps(parts).encode(), OCI_MANIFEST)


def lost_payload(server: FakeRegistry, _: Rig) -> None:
    sign(server)
    server.blobs.clear()


CASES: dict[str, tuple[Callable[[FakeRegistry, Rig], Path | None], int, str]] = {
    "unsigned": (lambda *_: None, 77, "is not signed, and VERLJOB_REQUIRE_SIGNATURE demands a signature by"),
    "another key": (another_key, 77, "is signed, but not this image by the owner of"),
    "another image": (another_image, 77, "invalid or missing digest in claim"),
    "changed payload": (changed_payload, 77, "is signed, but not this image by the owner of"),
    "no blob": (lost_payload, 66, "could not verify"),
}


@pytest.mark.parametrize("case", CASES)
def test_unverified_image_is_not_started(rig: Rig, cosign: Path, suite: str, server: FakeRegistry, case: str) -> None:
    prepare, code, message = CASES[case]
    key = prepare(server, rig)

    cause = refusal(rig, launch(rig, cosign, f"{server.host}/{NAME}:1", key or KEPT / "key.pub"), code)

    assert message in cause
    if recorded := json.loads((RECORDED / "cosign_verify" / f"{RECORDED_WITH[suite]}.json").read_text()).get(case):
        # The shell tests replay these.
        argv = [str(cosign), "verify", "--key", str(key or KEPT / "key.pub"), "--insecure-ignore-tlog=true"]
        done = subprocess.run([*argv, f"{server.host}/{NAME}:1"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (recorded["code"], recorded["out"])


def test_recorded_output_is_what_cosign_prints(cosign: Path, suite: str, server: FakeRegistry) -> None:
    sign(server)
    argv = [str(cosign), "verify", "--key", str(KEPT / "key.pub"), "--insecure-ignore-tlog=true", "--output=json"]

    done = subprocess.run([*argv, f"{server.host}/{NAME}:1"], capture_output=True, text=True, check=False)

    recorded = json.loads((RECORDED / "cosign_verify" / f"{RECORDED_WITH[suite]}.json").read_text())["verified"]
    assert (done.returncode, json.loads(done.stdout)) == (0, json.loads(recorded["out"]))


def test_unreachable_registry_and_missing_tag_exit_with_66(rig: Rig, cosign: Path, server: FakeRegistry) -> None:
    assert "connection refused" in refusal(rig, launch(rig, cosign, f"127.0.0.1:1/{NAME}:1"), 66)
    assert "image tag not found" in refusal(rig, launch(rig, cosign, f"{server.host}/{NAME}:2"), 66)


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_login_of_docker_is_used(rig: Rig, cosign: Path, kind: str) -> None:
    with running(kind) as server:
        digest = sign(server)
        assert "401" in refusal(rig, launch(rig, cosign, f"{server.host}/{NAME}:1"), 66)

        (rig.home / ".docker").mkdir()
        (rig.home / ".docker" / "config.json").write_text(json.dumps({"auths": {server.host: {"auth": PAIR}}}))

        assert launched_image(rig, launch(rig, cosign, f"{server.host}/{NAME}:1")).endswith(digest)


class Recorder(http.server.ThreadingHTTPServer):
    """A proxy that only records the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
        self.requests: list[bytes] = []

    def process_request(self, request: object, client_address: object) -> None:
        assert isinstance(request, socketserver.socket.socket)  # type: ignore[attr-defined]
        self.requests.append(request.recv(200))
        request.close()


def test_only_the_registry_is_queried(rig: Rig, cosign: Path, server: FakeRegistry) -> None:
    # No proxy is used for the registry on the loopback, but for a log, a key server or an update.
    digest = sign(server)
    with serving(Recorder()) as proxy:
        address = f"http://127.0.0.1:{proxy.server_port}"

        done = launch(rig, cosign, f"{server.host}/{NAME}:1", HTTPS_PROXY=address, https_proxy=address)

        assert launched_image(rig, done).endswith(digest)
        assert proxy.requests == []


# Lines that are valid in a configuration of curl, in a header with line breaks.
INJECTED = [
    'Bearer realm="{url}/token', "url: {url}/payload", "output: {home}/.bashrc", "form: key=@{home}/.ssh/id_rsa",
    'referer: ",service="x",scope="y"',
]  # fmt: skip


@pytest.mark.parametrize("folded", [True, False])
def test_header_of_a_registry_reads_and_writes_no_file_of_the_account(
    rig: Rig, cosign: Path, server: FakeRegistry, folded: bool
) -> None:
    sign(server)
    (rig.home / ".ssh").mkdir()
    (rig.home / ".ssh" / "id_rsa").write_text("PRIVATE-KEY-OF-VICTIM")
    (rig.home / ".bashrc").write_text("# mine\n")
    server.login = "bearer"
    breaks = "\r\n " if folded else "\r\n"
    server.challenge = breaks.join(INJECTED).format(url=server.url, home=rig.home)

    refusal(rig, launch(rig, cosign, f"{server.host}/{NAME}:1"), 66)

    assert (rig.home / ".bashrc").read_text() == "# mine\n"
    assert sorted(path.name for path in rig.home.rglob("*")) == [".bashrc", ".ssh", "id_rsa"]
    assert not [line for line in server.authorizations if "VICTIM" in line]
    assert not list((rig.root / "local").iterdir())


def test_endless_response_exits_with_66_and_leaves_no_files(rig: Rig, cosign: Path) -> None:
    class Endless(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing."""

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", OCI_MANIFEST)
            self.end_headers()
            try:
                for _ in range(0 if self.path == "/v2/" else 2000):
                    self.wfile.write(b" " * (1 << 20))
            except OSError:
                pass

    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless)) as server:
        refusal(rig, launch(rig, cosign, f"127.0.0.1:{server.server_port}/{NAME}:1"), 66)

    assert not list((rig.root / "local").iterdir())


@pytest.fixture
def site(rig: Rig, cosign: Path) -> Iterator[Callable[..., tuple[FakeRegistry, str]]]:
    """Registries over TLS by other names than the loopback's, which cosign treats specially. docker has the CA of each.

    Only cosign sees the /etc/hosts with the names (in a mount namespace: these tests run as root).
    """
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=test"]
    names = "subjectAltName=DNS:registry.test,DNS:tokens.test"
    run(
        [
            "openssl",
            "req",
            "-x509",
            *curve,
            "-keyout",
            f"{rig.root}/key",
            "-out",
            f"{rig.root}/ca.crt",
            "-addext",
            names,
        ]
    )
    (rig.root / "server.pem").write_text((rig.root / "ca.crt").read_text() + (rig.root / "key").read_text())
    (rig.root / "hosts").write_text("127.0.0.1 localhost thief.test\n127.0.0.2 registry.test\n127.0.0.3 tokens.test\n")
    wrapper = rig.root / "cosign"
    mounted = f'mount --bind {rig.root}/hosts /etc/hosts && exec {cosign} "$@"'
    wrapper.write_text(
        f"#!/bin/bash\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\nexec unshare --mount bash -c '{mounted}' cosign \"$@\"\n"
    )
    wrapper.chmod(0o755)
    (rig.home / ".docker").mkdir()
    with ExitStack() as stack:

        def start(name: str, address: str, login: str = "") -> tuple[FakeRegistry, str]:
            server = stack.enter_context(running(login, address, rig.root / "server.pem"))
            host = f"{name}:{server.server_port}"
            ca = CERTIFICATES / host / "ca.crt"
            ca.parent.mkdir(parents=True)
            stack.callback(ca.parent.rmdir)
            stack.callback(ca.unlink)
            ca.write_text((rig.root / "ca.crt").read_text())
            if login:
                auths = {"auths": {host: {"auth": PAIR}}}
                (rig.home / ".docker" / "config.json").write_text(json.dumps(auths))
            return server, host

        yield start


def test_token_service_over_https_on_another_host_works(
    rig: Rig, site: Callable[..., tuple[FakeRegistry, str]]
) -> None:
    (server, host), (tokens, theirs) = site("registry.test", "127.0.0.2", "bearer"), site("tokens.test", "127.0.0.3")
    digest = sign(server)
    server.challenge = f'Bearer realm="https://{theirs}/token",service="fake",scope="repository:{NAME}:pull"'

    assert launched_image(rig, launch(rig, rig.root / "cosign", f"{host}/{NAME}:1")) == f"{host}/{NAME}@{digest}"
    assert tokens.authorizations == [f"/token Basic {PAIR}"]


def test_registry_over_https_does_not_lead_cosign_to_http(
    rig: Rig, site: Callable[..., tuple[FakeRegistry, str]]
) -> None:
    server, host = site("registry.test", "127.0.0.2", "bearer")
    sign(server)
    with running() as thief:
        sign(thief)
        address = f"http://thief.test:{thief.server_port}"
        server.challenge = f'Bearer realm="{address}/token",service="fake"'
        causes = [refusal(rig, launch(rig, rig.root / "cosign", f"{host}/{NAME}:1", NO_PROXY="thief.test"), 66)]
        server.login, server.elsewhere = "", address
        causes.append(refusal(rig, launch(rig, rig.root / "cosign", f"{host}/{NAME}:1"), 66))

        assert all("it led to plain http, and docker uses only TLS for this registry" in cause for cause in causes)
        assert (thief.authorizations, thief.requests) == ([], [])


def test_registry_over_http_is_used_if_the_engine_uses_http_for_it(
    rig: Rig, site: Callable[..., tuple[FakeRegistry, str]]
) -> None:
    site("registry.test", "127.0.0.2")
    with running() as server:
        digest, host = sign(server), f"thief.test:{server.server_port}"
        refusal(rig, launch(rig, rig.root / "cosign", f"{host}/{NAME}:1"), 66)
        assert server.requests == []

        rig.fake("insecure", f"{host} \n")

        assert launched_image(rig, launch(rig, rig.root / "cosign", f"{host}/{NAME}:1")) == f"{host}/{NAME}@{digest}"


def test_recorded_signatures_are_of_the_recorded_image() -> None:
    digest = hashlib.sha256((KEPT / "image.json").read_bytes()).hexdigest()

    for version in RECORDED_WITH.values():
        assert f"sha256:{digest}" in (KEPT / f"{version}.payload").read_text()
