"""Inherited tests (tests/image/inherited) are skipped only for the same image, code and engine that passed before."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from images.catalog.catalog import Catalog
from tests.image import conftest as counting
from tests.image.inherited import conftest as inherited
from tests.image.inherited.conftest import Subject

SUBJECT = Subject("verl.cpu:1", Catalog.read().find("cpu"))


class FakeEngine:
    """ID of an image and version of a daemon."""

    image_id, number = "sha256:1", "20.10"

    def local(self, _reference: str) -> SimpleNamespace:
        return SimpleNamespace(id=self.image_id)

    def daemon(self) -> SimpleNamespace:
        return SimpleNamespace(version=lambda: {"Version": self.number})


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine()
    (tmp_path / "images").mkdir()
    (tmp_path / "images/spec.py").write_text("one")
    monkeypatch.setattr(inherited, "engine", fake)
    monkeypatch.setattr(inherited, "CHECKOUT", tmp_path)
    monkeypatch.setattr(inherited, "CODE", ("images",))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("VERLJOB_TEST_AGAIN", raising=False)
    inherited._code_digest.cache_clear()
    return fake


def function(name: str = "test_one", *, number: int = 0, **arguments: Any) -> pytest.Function:
    callspec = SimpleNamespace(params={"subject": "cpu", "number": number})
    fake = SimpleNamespace(originalname=name, callspec=callspec, funcargs=arguments, stash=pytest.Stash())
    return cast(pytest.Function, fake)


def record_pass(item: pytest.Function) -> None:
    inherited._write_record(item.stash[inherited.RECORD], item.originalname)


def is_skipped(name: str = "test_one", *, number: int = 0, subject: Subject = SUBJECT) -> bool:
    return inherited.pytest_pyfunc_call(function(name, number=number, subject=subject)) is True


def test_only_a_passed_test_is_skipped(engine: FakeEngine) -> None:
    first = function(subject=SUBJECT)

    assert inherited.pytest_pyfunc_call(first) is None
    assert not is_skipped()
    record_pass(first)
    assert is_skipped()
    assert not is_skipped("test_other")
    assert not is_skipped(number=1)


def test_another_name_of_the_image_is_no_other_test(engine: FakeEngine) -> None:
    first = function(subject=SUBJECT)
    inherited.pytest_pyfunc_call(first)
    record_pass(first)

    assert is_skipped(subject=Subject("sha256:1", SUBJECT.variant))


def test_another_image_engine_or_code_runs_it_again(engine: FakeEngine, tmp_path: Path) -> None:
    first = function(subject=SUBJECT)
    inherited.pytest_pyfunc_call(first)
    record_pass(first)

    engine.image_id = "sha256:2"
    assert not is_skipped()
    engine.image_id, engine.number = "sha256:1", "23.0"
    assert not is_skipped()
    engine.number = "20.10"
    assert is_skipped()
    (tmp_path / "images/spec.py").write_text("two")
    inherited._code_digest.cache_clear()
    assert not is_skipped()


def test_variable_runs_every_test_again(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = function(subject=SUBJECT)
    inherited.pytest_pyfunc_call(first)
    record_pass(first)
    monkeypatch.setenv("VERLJOB_TEST_AGAIN", "1")

    assert not is_skipped()


def test_test_without_an_image_always_runs(engine: FakeEngine) -> None:
    assert inherited.pytest_pyfunc_call(function()) is None


def report(*properties: tuple[str, str]) -> pytest.TestReport:
    return cast(pytest.TestReport, SimpleNamespace(when="call", user_properties=list(properties)))


def test_passed_before_is_a_separate_outcome() -> None:
    before = report((counting.PASSED_BEFORE, "2026-11-22T00:00:00Z"))

    assert counting.pytest_report_teststatus(before) == ("passed before", "b", "PASSED BEFORE")
    assert counting.pytest_report_teststatus(report()) is None


def test_summary_counts_passed_before_with_the_oldest_day() -> None:
    days = ["2026-11-22T00:00:00Z", "2026-11-20T00:00:00Z"]
    lines: list[str] = []
    stats = {counting.PASSED_BEFORE: [report((counting.PASSED_BEFORE, day)) for day in days]}
    for counted in (stats, {}):
        reporter = SimpleNamespace(stats=counted, write_line=lines.append)
        counting.pytest_terminal_summary(cast(pytest.TerminalReporter, reporter))

    (line,) = lines
    assert line.startswith("passed before: 2 tests on the same images by the same code, the first on 2026-11-20")


def test_image_inherits_tests_for_all_images_its_platform_and_itself() -> None:
    assert Subject("verl.cpu:1", Catalog.read().variants["cpu-vllm"]).lineage == ("every", "cpu", "cpu-vllm")
