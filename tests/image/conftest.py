"""The images under test: built here when they are not yet, which the layer cache makes quick."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import requests
import standin
from docker import DockerClient
from pytest_docker.plugin import get_docker_services

from images.builds import build
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.engine import base_image as debian
from images.engine import daemon as engine
from images.pins import locks
from slurm.testbed import compose

CATALOG = Catalog.read()
PASSED_BEFORE = "passed before"


@pytest.fixture(scope="session", autouse=True)
def _with_docker(docker_client: str) -> None:
    """Every test here uses it."""


@pytest.fixture(scope="session")
def daemon() -> Iterator[DockerClient]:
    client = engine.daemon()
    yield client
    client.close()
    engine.daemon.cache_clear()


@pytest.fixture(scope="session")
def registry(docker_client: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry's address. Not through `docker_services`: a run has one of it, and that is the rehearsal cluster's."""
    compose.build_images(debian.ensure())
    path = tmp_path_factory.mktemp("registry") / "compose.yaml"
    path.write_text(
        f'version: "3"\nservices:\n  registry:\n    image: {compose.IMAGES}-registry\n    ports: ["127.0.0.1::5000"]\n'
    )
    command = shlex.join(compose.compose_command())
    # Without --wait, which docker-compose 1.29 lacks.
    up, down = ["up --detach"], ["down --volumes --timeout 0"]
    project = f"verljob-test-push{os.environ.get('PYTEST_XDIST_WORKER', '')}"
    with get_docker_services(command, str(path), project, up, down) as services:
        address = f"127.0.0.1:{services.port_for('registry', 5000)}"

        def answers() -> bool:
            try:
                return requests.get(f"http://{address}/v2/", timeout=2).ok
            except requests.ConnectionError:
                return False

        services.wait_until_responsive(answers, timeout=30, pause=0.1)
        yield address


# What `ray --version` needs of what ray[default] pulls, and the stub of vLLM.
OF_RAY = [
    "ray", "click", "filelock", "jsonschema", "jsonschema-specifications", "msgpack", "packaging", "protobuf", "pyyaml",
    "requests", "attrs", "referencing", "rpds-py", "typing-extensions", "charset-normalizer", "idna", "urllib3",
    "certifi", "aiosignal", "frozenlist", "numpy",
]  # fmt: skip


def small(variant: Variant, **more: str) -> Variant:
    """The variant with Ray's and verl's own packages alone, verl without the gigabyte that it pulls."""
    installs = {"verl": variant.installs["verl"], "ray": variant.installs["ray"], **more}
    return replace(variant, installs=installs, extras={}, imports=["torch", "ray", "verl"], tolerates=["verl:.*"])


def small_lock(variant: Variant, folder: Path, **more: str) -> Path:
    """The lines of the variant's lock for that, and one for each package more, which the stand-in offers."""
    lines = locks.path(variant).read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.split("==")[0] in ("verl", *OF_RAY)]
    standin.offered(folder)
    for name, version in more.items():
        wheel = next(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
        kept.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}")
    (folder / "lock.txt").write_text("\n".join(kept), encoding="utf-8")
    return folder / "lock.txt"


@pytest.fixture(scope="session")
def build_on_standin(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Build a small set of a variant on its stand-in, or on what was built there, with other packages more; its ID.

    All variants are built at once to begin with, and nothing twice.
    """

    @cache
    def make(variant: str, base: str = "", **more: str) -> str:
        chosen = CATALOG.variants[variant]
        lines = small_lock(chosen, tmp_path_factory.mktemp(variant), **more)
        tag = f"verljob-test-{variant}:{'-'.join(more) or 'plain'}"
        reference = base or standin.ensure(variant)
        return build.build(small(chosen, **more), Site.here(), [tag], from_base=reference, lock=lines)

    debian.ensure()
    # Threads that ask pytest for the first folder at once each empty what it makes.
    tmp_path_factory.getbasetemp()
    with ThreadPoolExecutor() as pool:
        list(pool.map(make, standin.STUBS))
    return make


# Here and not beside those tests: of a run in several processes the one that counts collects nothing.
def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    if report.when == "call" and PASSED_BEFORE in dict(report.user_properties):
        return PASSED_BEFORE, "b", PASSED_BEFORE.upper()
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if before := terminalreporter.stats.get(PASSED_BEFORE, []):
        first = min(dict(report.user_properties)[PASSED_BEFORE] for report in before)
        terminalreporter.write_line(
            f"passed before: {len(before)} tests on the same images by the same code, the first on {first}; "
            "VERLJOB_TEST_AGAIN=1 runs them again"
        )
