"""Tests that images inherit: HOLDS_FOR of a file is `every`, a platform or a variant, and the file's tests run on each
image below it in the catalog's tree.

A test that passed is not run again on the same image: its record depends on the image's ID, the digest of the code that
decides, and the engine. It then counts as `passed before`, neither as passed nor as skipped, in CI and elsewhere.
VERLJOB_TEST_AGAIN=1 runs everything; VERLJOB_TEST_IMAGES is a list of local images to test instead of the default ones.
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
RECORD = pytest.StashKey[Path]()
SINCE = pytest.StashKey[str]()


@dataclass(frozen=True)
class Subject:
    """An image under test, and its variant in the catalog."""

    image: str
    variant: Variant

    @property
    def lineage(self) -> tuple[str, str, str]:
        return ("every", self.variant.platform, self.variant.name)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "subject" in metafunc.fixturenames:
        level = metafunc.module.HOLDS_FOR
        listed = os.environ.get("VERLJOB_TEST_IMAGES", "").split()
        defaults = [
            variant for variant in (*standin.VARIANTS, "cpu") if level in ("every", variant, _platform(variant))
        ]
        images = [image for image in listed if level in ("every", *_lineage(image))]
        metafunc.parametrize("subject", images if listed else defaults, indirect=True)


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest, docker_client: str, daemon: DockerClient) -> Subject:
    """Return the image of a variant, which is built here, or one of VERLJOB_TEST_IMAGES."""
    if os.environ.get("VERLJOB_TEST_IMAGES"):
        _, variant = _lineage(request.param)
        return Subject(request.param, CATALOG.variants[variant])
    if request.param == "cpu":
        return Subject(request.getfixturevalue("cpu_image"), CATALOG.find("cpu"))
    build_on_standin: Callable[..., str] = request.getfixturevalue("build_on_standin")
    return Subject(build_on_standin(request.param), small(CATALOG.variants[request.param]))


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Skip a test that passed before; pytest calls it if this returns None."""
    subject = pyfuncitem.funcargs.get("subject")
    if not isinstance(subject, Subject):
        return None
    path = _record_path(_name(pyfuncitem), subject.image)
    if path.exists() and not os.environ.get("VERLJOB_TEST_AGAIN"):
        pyfuncitem.stash[SINCE] = json.loads(path.read_text(encoding="utf-8"))["when"]
        return True
    pyfuncitem.stash[RECORD] = path
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None] | pytest.TestReport:
    report: pytest.TestReport = yield  # type: ignore[misc,assignment]
    if report.when == "call" and report.passed:
        if since := item.stash.get(SINCE, ""):
            report.user_properties.append((PASSED_BEFORE, since))
        elif path := item.stash.get(RECORD, None):
            _write_record(path, item.nodeid)
    return report


def _lineage(image: str) -> tuple[str, str]:
    labels = engine.local(image).labels
    return labels["verljob.platform"], labels["verljob.variant"]


def _platform(variant: str) -> str:
    return CATALOG.variants[variant].platform


def _name(item: pytest.Function) -> str:
    """Return the test's name without its image: a release runs the same tests under another name of the image."""
    others = {name: value for name, value in item.callspec.params.items() if name != "subject"}
    return f"{item.originalname}{others or ''}"


def _record_path(test: str, image: str) -> Path:
    """Return the path of the record that a test passed on an image."""
    facts = [test, str(engine.local(image).id), _code_digest(), str(engine.daemon().version()["Version"])]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "verljob" / "passed" / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()}.json"


def _write_record(path: Path, test: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    when = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps({"test": test, "when": when}), encoding="utf-8")
    new.replace(path)


@cache
def _code_digest() -> str:
    """Return the digest of what a test's result depends on besides the image: the tests and what they read."""
    digest = hashlib.sha256()
    for part in CODE:
        root = CHECKOUT / part
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(CHECKOUT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
