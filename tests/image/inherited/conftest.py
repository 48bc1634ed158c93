"""Tests that images inherit: a file of this folder says in HOLDS_FOR what it holds for, `every` image, a platform, or
a variant, and is run on each image below that in the catalog's tree.

A test that passed is not run again on the very same image: its record names the image's ID, the digest of all code that
decides, and the engine. It then counts as `passed before`, neither as passed nor as skipped, in CI as elsewhere.
VERLJOB_TEST_AGAIN=1 runs everything; VERLJOB_TEST_IMAGES names images of this machine in place of the usual three.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

import pytest
import standin
from docker import DockerClient

from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.engine import daemon as engine
from tests.image.conftest import PASSED_BEFORE, small
from tests.support.paths import CHECKOUT

CODE = ("images", "tests/image", "tests/support", "tests/conftest.py", "dockerfiles")
CATALOG = Catalog.read()
PASSED = pytest.StashKey[Path]()
SINCE = pytest.StashKey[str]()


@dataclass(frozen=True)
class Subject:
    """An image under test, and what the catalog says that it is."""

    image: str
    variant: Variant

    @property
    def lineage(self) -> tuple[str, str, str]:
        return ("every", self.variant.platform, self.variant.name)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "subject" in metafunc.fixturenames:
        level = metafunc.module.HOLDS_FOR
        named = os.environ.get("VERLJOB_TEST_IMAGES", "").split()
        usual = [variant for variant in (*standin.STUBS, "cpu") if level in ("every", variant, _platform(variant))]
        images = [image for image in named if level in ("every", *_lineage(image))]
        metafunc.parametrize("subject", images if named else usual, indirect=True)


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest, docker_client: str, daemon: DockerClient) -> Subject:
    """The image of a variant that is built here, or one of VERLJOB_TEST_IMAGES."""
    if os.environ.get("VERLJOB_TEST_IMAGES"):
        _, variant = _lineage(request.param)
        return Subject(request.param, CATALOG.variants[variant])
    if request.param == "cpu":
        return Subject(request.getfixturevalue("cpu_image"), CATALOG.find("cpu"))
    build_on_standin: Callable[..., str] = request.getfixturevalue("build_on_standin")
    return Subject(build_on_standin(request.param), small(CATALOG.variants[request.param]))


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Leave a test alone that passed before; pytest calls it when this returns None."""
    subject = pyfuncitem.funcargs.get("subject")
    if not isinstance(subject, Subject):
        return None
    path = _record(pyfuncitem.name, subject.image)
    if path.exists() and not os.environ.get("VERLJOB_TEST_AGAIN"):
        pyfuncitem.stash[SINCE] = json.loads(path.read_text(encoding="utf-8"))["when"]
        return True
    pyfuncitem.stash[PASSED] = path
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None] | pytest.TestReport:
    report: pytest.TestReport = yield  # type: ignore[misc,assignment]
    if report.when == "call" and report.passed:
        if since := item.stash.get(SINCE, ""):
            report.user_properties.append((PASSED_BEFORE, since))
        elif path := item.stash.get(PASSED, None):
            _keep(path, item.nodeid)
    return report


def _lineage(image: str) -> tuple[str, str]:
    labels = engine.local(image).labels
    return labels["verljob.platform"], labels["verljob.variant"]


def _platform(variant: str) -> str:
    return CATALOG.variants[variant].platform


def _record(test: str, image: str) -> Path:
    """Where it is noted that a test passed on an image."""
    facts = [test, str(engine.local(image).id), _code(), str(engine.daemon().version()["Version"])]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "verljob" / "passed" / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()}.json"


def _keep(path: Path, test: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    when = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps({"test": test, "when": when}), encoding="utf-8")
    new.replace(path)


@cache
def _code() -> str:
    """The digest of all that decides whether a test passes besides the image: the tests and what they read."""
    digest = hashlib.sha256()
    for part in CODE:
        root = CHECKOUT / part
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(CHECKOUT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
