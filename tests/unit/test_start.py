"""Invoke as `./run` starts it is Invoke."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import CHECKOUT

USUAL = [sys.executable, "-m", "invoke", "--search-root", str(CHECKOUT)]
OURS = [sys.executable, str(CHECKOUT / "start.py")]


def outcome(argv: list[str], folder: Path) -> tuple[int, str, str]:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", [["--list"], ["--help", "build"], ["build", "--platform=no"], ["no-such-task"]])
def test_it_says_and_ends_as_invoke_does_from_any_folder(words: list[str], tmp_path: Path) -> None:
    assert outcome([*OURS, *words], tmp_path) == outcome([*USUAL, *words], tmp_path)


def test_a_configuration_file_is_read_though_nothing_else_loads_yaml(tmp_path: Path) -> None:
    (tmp_path / "right.yaml").write_text("tasks: {dedupe: false}\n")
    (tmp_path / "wrong.yaml").write_text("tasks: [\n")

    assert outcome([*OURS, "-f", str(tmp_path / "right.yaml"), "site"], tmp_path)[0] == 0
    assert "yaml" in outcome([*OURS, "-f", str(tmp_path / "wrong.yaml"), "site"], tmp_path)[2]


def test_yaml_is_not_run_where_no_file_asks_for_it_and_garbage_is_looked_for_again() -> None:
    script = "import gc, start, sys; start.program.run = lambda _: None; start.main(); "
    script += "print(gc.isenabled(), type.__call__(type, sys.modules['invoke.vendor.yaml']).__name__)"
    said = subprocess.run(
        [sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=True
    ).stdout

    assert said.split() == ["True", "_LazyModule"]


def test_the_mock_of_invoke_comes_when_one_is_made() -> None:
    script = "import start, sys; print('unittest.mock' in sys.modules, 'asyncio' in sys.modules); from invoke import "
    script += "MockContext, Result; print(MockContext(run=Result('said')).run('x').stdout, 'asyncio' in sys.modules); "
    script += "from unittest.mock import Mock; print(isinstance(Mock(), Mock))"
    said = subprocess.run(
        [sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=True
    ).stdout

    assert said.split() == ["False", "False", "said", "True", "True"]


def test_a_suite_that_is_none_ends_the_tests_and_those_that_there_are_are_named(tmp_path: Path) -> None:
    code, _, said = outcome([*OURS, "test", "--only", "lint,imgae"], tmp_path)

    assert code == 2
    assert "There is no suite imgae; there are lint, unit, shell, image, cluster." in said
