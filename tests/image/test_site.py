"""A real build at a site where every service needs a password, and one without a network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from types import SimpleNamespace

import pytest
from docker import DockerClient

from images.builds import bundle
from images.builds.build import BuildRequest, build
from images.builds.bundle import Bundle
from images.builds.site import Site
from images.context import context
from images.engine import base_image
from images.engine.client import choose
from images.errors import BundleBroken, CommandFailed
from images.host.process import run
from images.provenance import attest
from images.report import record, store
from tests.support.images import services, small_variant
from tests.support.paths import CHECKOUT

TAG, BASE = "verljob-test-site:1", "verljob-test-site:base"
# These must not leak: three passwords, one of a proxy in docker's own configuration, and a key beside a CA.
CANARIES = {name: f"canary-{name}-{os.urandom(8).hex()}" for name in ("index", "apt", "proxy", "docker", "ca")}
SEARCH = "ARG BASE\nFROM ${BASE}\nRUN --mount=type=cache,target=/root/.cache/pip find /root/.cache -type f -mmin -15"


@pytest.fixture(scope="module")
def place(daemon: DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """The services and settings of a site; builds stage into a separate folder."""
    folder = tmp_path_factory.mktemp("site")
    files, lock = small_variant.lay_out(folder)
    for name in ("index", "apt", "proxy"):
        (folder / name).write_text(CANARIES[name] + "\n")
    machine = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
    (folder / "ca.pem").write_text(f"# PRIVATE KEY {CANARIES['ca']}\n{machine.read_text()}")
    (folder / "debian").mkdir()
    (folder / "nonce").write_bytes(os.urandom(8))
    (folder / "Dockerfile").write_text(
        "ARG BASE\nFROM ${BASE}\nCOPY nonce /nonce\n"
    )  # a cache miss for layers of earlier runs
    (folder / ".dockerignore").write_text("*\n!nonce\n")
    run(
        choose().build_argv(["--tag", BASE, "--build-arg", f"BASE={base_image.ensure()}", str(folder)]),
        choose().environment,
    )
    address = services.bridge_address(daemon)
    with services.running(address, files, folder / "debian", "robot", CANARIES) as server:
        own = {"proxies": {"default": {"httpProxy": f"http://robot:{CANARIES['docker']}@{server.host}"}}}
        (folder / "config.json").write_text(json.dumps(own))
        (folder / "site.toml").write_text(
            f'wheelhouse = "wheelhouse"\nca = "ca.pem"\n'
            f'pip_index = "http://robot@{server.host}/simple"\npip_index_password_file = "index"\n'
            f'apt_mirror = "http://robot@{server.host}/debian"\napt_mirror_password_file = "apt"\n'
            f'proxy = "http://robot@{server.host}"\nproxy_password_file = "proxy"\n'
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_CONFIG", str(folder))
            patch.setattr(context, "STAGED", folder / "staged")
            patch.setattr(record, "RECORDS", folder / "records")
            site = Site.read(str(folder / "site.toml"), {})
            yield SimpleNamespace(folder=folder, lock=lock, server=server, site=site)


@pytest.fixture(scope="module")
def built(place: SimpleNamespace, daemon: DockerClient) -> Iterator[SimpleNamespace]:
    """The image, and the output of its build."""
    place.server.requests.clear()
    with (place.folder / "log").open("w") as log, redirect_stderr(log):
        image_id = build(BuildRequest(small_variant.small(), [TAG], BASE, place.lock), place.site)
    yield SimpleNamespace(id=image_id, log=(place.folder / "log").read_text(), requests=list(place.server.requests))
    daemon.images.remove(TAG)


def found(content: bytes) -> list[str]:
    return [name for name, canary in CANARIES.items() if canary.encode() in content]


def test_the_build_uses_mirror_index_and_proxy(built: SimpleNamespace, daemon: DockerClient) -> None:
    paths = [request.path for request in built.requests]

    assert any(path.startswith("/debian/pool/main/t/tini/") for path in paths)
    assert "/simple/ray/ray-2.60.0-py3-none-any.whl" in paths
    assert all(request.proxied for request in built.requests)
    assert "eth0" in interfaces(daemon, TAG)


def test_a_source_is_built_with_pinned_tools_not_with_the_newest(built: SimpleNamespace, daemon: DockerClient) -> None:
    pinned = (context.TEMPLATES / "build-tools.txt").read_text().splitlines()[-1].split()[0]

    program = "import source_only; print(source_only.BUILT_WITH)"
    version = daemon.containers.run(TAG, ["python3", "-c", program], remove=True).decode()

    assert f"setuptools=={version.strip()}" == pinned
    assert not [request.path for request in built.requests if "setuptools-999" in request.path]


def test_no_secret_is_in_a_layer_the_history_or_a_label(built: SimpleNamespace, daemon: DockerClient) -> None:
    image = daemon.images.get(TAG)

    assert found(json.dumps([image.attrs, image.history()]).encode()) == []
    # A chunk is larger than a canary, so two at a time contain every canary.
    last = b""
    for chunk in image.save(chunk_size=1 << 22):
        assert found(last + chunk) == []
        last = chunk


def test_no_secret_is_in_the_log_the_records_or_the_statements(
    built: SimpleNamespace, place: SimpleNamespace, tmp_path: Path
) -> None:
    attest.write(TAG, tmp_path)
    folders = (place.folder / "staged", place.folder / "records", tmp_path)
    written = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    written += store.REPORTS.glob(f"{store.stem(TAG)}.*")

    assert len(written) > 50
    assert {path.name: leaked for path in written if (leaked := found(path.read_bytes()))} == {}
    assert "Successfully installed" in built.log
    assert found(built.log.encode()) == []


def test_no_secret_is_in_the_caches_of_the_build(built: SimpleNamespace, tmp_path: Path) -> None:
    patterns = "".join(f" -e {canary}" for canary in CANARIES.values())
    (tmp_path / "Dockerfile").write_text(f"{SEARCH} -exec grep -l{patterns} {{}} + | tee /found; test ! -s /found\n")
    argv = choose().build_argv(["--no-cache", "--build-arg", f"BASE={base_image.ensure()}", str(tmp_path)])

    run(argv, choose().environment)


def test_a_failed_build_shows_no_secret(place: SimpleNamespace) -> None:
    (place.folder / "broken.txt").write_text(f"{place.lock.read_text()}no-such-package==1.0 --hash=sha256:{64 * '0'}\n")
    with (
        (place.folder / "failed").open("w") as log,
        redirect_stderr(log),
        pytest.raises(CommandFailed) as failure,
    ):
        build(BuildRequest(small_variant.small(), [TAG], BASE, place.folder / "broken.txt"), place.site)

    log_text = (place.folder / "failed").read_text()
    assert re.search(r"ERROR: .*no-such-package==1\.0", log_text)
    assert found((log_text + str(failure.value)).encode()) == []


@pytest.fixture(scope="module")
def carried(place: SimpleNamespace) -> Path:
    """A bundle made at the site."""
    output: Path = place.folder / "bundle"
    bundle.make(small_variant.small(), place.site, output, base=BASE, lock=place.lock)
    return output


def test_a_bundle_has_the_downloads_of_the_build_and_no_secret(carried: Path) -> None:
    files = [path for path in carried.rglob("*") if path.is_file()]
    names = {str(path.relative_to(carried)).split("_")[0].split("-")[0] for path in files}

    assert {"base.tar", "bundle.json", "debs/tini", "debs/Packages", "wheels/torch", "wheels/ray"} <= names
    assert {"wheels/source", "wheels/setuptools"} <= names, "a package without a wheel, and its build tool"
    assert not list(carried.glob("wheels/setuptools-999*"))
    assert {path.name: leaked for path in files if (leaked := found(path.read_bytes()))} == {}


def test_a_bundle_builds_without_a_network(daemon: DockerClient, place: SimpleNamespace, carried: Path) -> None:
    tag = "verljob-test-site:offline"
    place.server.requests.clear()
    daemon.images.remove(BASE)
    argv = [sys.executable, "tests/support/images/small_variant.py", str(carried), str(place.lock), tag]
    paths = os.pathsep.join(map(str, (CHECKOUT, CHECKOUT / "tests/image/standins")))

    # No route, no DNS and no loopback for the command; no network for the steps.
    environment = {**os.environ, "PYTHONPATH": paths}
    isolated = ["unshare", "--net", *argv]
    done = subprocess.run(isolated, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    assert place.server.requests == []
    assert interfaces(daemon, tag) == "['lo']\n"
    assert daemon.images.get(tag).labels["verljob.base"] == BASE
    for each in (tag, *daemon.images.get(BASE).tags):  # its name, and its name in the archive
        daemon.images.remove(each)


def interfaces(daemon: DockerClient, image: str) -> str:
    """The network interfaces in a step of the image's build."""
    program = "import source_only; print(source_only.INTERFACES)"
    return str(daemon.containers.run(image, ["python3", "-c", program], remove=True).decode())


def test_a_damaged_file_is_named_before_a_build_starts(carried: Path) -> None:
    wheel = next((carried / bundle.WHEELS).glob("ray-*"))
    content = wheel.read_bytes()
    wheel.unlink()  # it may be a hard link
    wheel.write_bytes(content[:-1] + b"x")

    with pytest.raises(BundleBroken, match=rf"wheels/{wheel.name} is damaged"):
        Bundle.read(carried)
