"""The child of a deep check: its code, its time, and that nothing of it is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from verl_node.checks import child
from verl_node.supervision import process_tree

STAYS = "sleep 60 & echo $! > {pid}; "


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int | None]:
    """Run a script in the interpreter's place."""
    python = tmp_path / "python3"
    monkeypatch.setattr(child.sys, "executable", str(python))

    def run(script: str, limit_s: float = 30.0, done: Callable[[], bool] = lambda: False) -> int | None:
        python.write_text(f"#!/bin/sh\n{script.format(pid=tmp_path / 'pid')}\n")
        python.chmod(0o755)
        with (tmp_path / "said").open("wb") as said:
            return child.run(
                ["any.module", "word"], limit_s=limit_s, stdout=said, stderr=said, environ={"ITS": "own"}, done=done
            )

    return run


def test_it_runs_the_module_with_its_words_and_tells_its_code(ran: Callable[..., int | None], tmp_path: Path) -> None:
    assert ran('echo "$@ $ITS"; exit 3') == 3
    assert (tmp_path / "said").read_text() == "-m any.module word own\n"


def test_one_that_takes_too_long_is_ended_with_what_it_started(ran: Callable[..., int | None], tmp_path: Path) -> None:
    assert ran(STAYS + "wait", limit_s=0.5) is None
    assert not process_tree.lives(int((tmp_path / "pid").read_text()), "sleep")


def test_one_that_is_done_is_not_waited_for(ran: Callable[..., int | None], tmp_path: Path) -> None:
    began = time.monotonic()

    assert ran(STAYS + "wait", done=(tmp_path / "pid").exists) is None
    assert time.monotonic() - began < 10
