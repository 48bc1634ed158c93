"""The images under test, built if they are missing or changed, which the layer cache makes quick."""

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
from packaging.utils import canonicalize_name
from pytest_docker.plugin import get_docker_services

from images.builds import build
from images.builds.site import Site
from images.catalog import verl_releases
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
    """Every test of this folder uses the docker client."""


@pytest.fixture(scope="session")
def daemon() -> Iterator[DockerClient]:
    client = engine.daemon()
    yield client
    client.close()
    engine.daemon.cache_clear()


@pytest.fixture(scope="session")
def registry(docker_client: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a registry; not of `docker_services`, which a run has once and the rehearsal cluster uses."""
    compose.build_images(debian.ensure(*debian.debian(compose.debian())))
    path = tmp_path_factory.mktemp("registry") / "compose.yaml"
    path.write_text(
        'version: "3"\nservices:\n  registry:\n    ports: ["127.0.0.1::5000"]\n'
        f"    image: {compose.images()}-registry\n"
    )
    command = shlex.join(compose.compose_command())
    # Without --wait, which docker-compose 1.29 does not have.
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


def small(variant: Variant, **added: str) -> Variant:
    """The variant with the packages of Ray and verl only, without verl's gigabyte of dependencies."""
    # lm-format-enforcer is what the replaced vLLM requires in another version than the base's.
    kept = {name: variant.installs[name] for name in ("verl", "ray", "lm-format-enforcer") if name in variant.installs}
    required = [requirement.name for requirement in verl_releases.release(kept["verl"]).requires_dist or []]
    tolerates = [f"verl:{name}" for name in dict.fromkeys(map(canonicalize_name, required))]
    imports = ["torch", "ray", "verl"]
    return replace(variant, installs={**kept, **added}, extras={}, imports=imports, tolerates=tolerates)


def small_lock(variant: Variant, folder: Path, **added: str) -> Path:
    """The lines of the variant's lock for these packages, and one per added package, which the stand-in offers."""
    lines = locks.path(variant).read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.split("==")[0] in {"verl", "lm-format-enforcer", *standin.REAL}]
    standin.offered(folder)
    for name, version in added.items():
        wheel = next(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
        kept.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}")
    (folder / "lock.txt").write_text("\n".join(kept), encoding="utf-8")
    return folder / "lock.txt"


@pytest.fixture(scope="session")
def build_on_standin(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Builds a small variant on its stand-in or on another base, with added packages, and returns the image's ID.

    All variants are built in parallel at first, and nothing twice.
    """

    @cache
    def make(variant: str, base: str = "", **added: str) -> str:
        chosen = CATALOG.variants[variant]
        lock = small_lock(chosen, tmp_path_factory.mktemp(variant), **added)
        tag = f"verljob-test-{variant}:{'-'.join(added) or 'plain'}"
        reference = base or standin.ensure(variant)
        return build.build(build.BuildRequest(small(chosen, **added), [tag], reference, lock), Site.read())

    debian.ensure()
    # Threads that request the first folder at the same time each empty it.
    tmp_path_factory.getbasetemp()
    with ThreadPoolExecutor() as pool:
        list(pool.map(make, standin.VARIANTS))
    return make


# In this file, not beside those tests: in a run with several processes the counting process collects nothing.
def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    if report.when == "call" and PASSED_BEFORE in dict(report.user_properties):
        return PASSED_BEFORE, "b", PASSED_BEFORE.upper()
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if repeated := terminalreporter.stats.get(PASSED_BEFORE, []):
        first = min(dict(report.user_properties)[PASSED_BEFORE] for report in repeated)
        terminalreporter.write_line(
            f"passed before: {len(repeated)} tests on the same images by the same code, the first on {first}; "
            "VERLJOB_TEST_AGAIN=1 runs them again"
        )
