"""Child process of a deep check: exit code, time limit, and no process left behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from verl_node.checks import child
from verl_node.supervision import process_tree

from tests.support.waiting import wait_for

LEAVES_A_CHILD = "sleep 60 & echo $! > {pid}; "


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int | None]:
    """Runs a script instead of the interpreter."""
    python = tmp_path / "python3"
    monkeypatch.setattr(child.sys, "executable", str(python))

    def run(script: str, limit_s: float = 30.0, done: Callable[[], bool] = lambda: False) -> int | None:
        python.write_text(f"#!/bin/sh\n{script.format(pid=tmp_path / 'pid')}\n")
        python.chmod(0o755)
        with (tmp_path / "output").open("wb") as output:
            return child.run(
                ["any.module", "word"], limit_s=limit_s, stdout=output, stderr=output, environ={"ITS": "own"}, done=done
            )

    return run


def test_child_gets_its_arguments_and_returns_its_exit_code(ran: Callable[..., int | None], tmp_path: Path) -> None:
    assert ran('echo "$@ $ITS"; exit 3') == 3
    assert (tmp_path / "output").read_text() == "-m any.module word own\n"


def test_child_over_its_limit_is_killed_with_its_descendants(ran: Callable[..., int | None], tmp_path: Path) -> None:
    assert ran(LEAVES_A_CHILD + "wait", limit_s=0.5) is None
    assert not process_tree.lives(int((tmp_path / "pid").read_text()), "sleep")


def test_descendant_that_starts_after_the_listing_is_killed_too(
    ran: Callable[..., int | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, go = process_tree.below, tmp_path / "go"

    def below(pid: int) -> list[int]:
        found = listed(pid)
        if not go.exists():
            go.touch()
            wait_for(tmp_path / "pid")
        return found

    monkeypatch.setattr(process_tree, "below", below)

    assert ran(f"until [ -e {go} ]; do sleep 0.01; done; {LEAVES_A_CHILD} wait", limit_s=0.5) is None
    assert not process_tree.lives(int((tmp_path / "pid").read_text()), "sleep")


def test_child_that_is_done_is_killed_at_once(ran: Callable[..., int | None], tmp_path: Path) -> None:
    began = time.monotonic()

    assert ran(LEAVES_A_CHILD + "wait", done=(tmp_path / "pid").exists) is None
    assert time.monotonic() - began < 10
