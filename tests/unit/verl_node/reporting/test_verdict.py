from __future__ import annotations

from pathlib import Path

from verl_node.errors import ClusterLost, EndedFromOutside
from verl_node.reporting.verdict import Verdict, save_phases, save_verdict


def test_a_verdict_file_has_one_line_per_key(tmp_path: Path) -> None:
    error = ClusterLost("It ended:\nx=1\n  no more.", fix="Look.", host="n2")
    verdict = Verdict.from_error(error, stage="train", host="n1")

    assert save_verdict(verdict, [tmp_path / "out"]) == []
    assert (tmp_path / "out" / "verdict").read_text() == (
        "code=76\norigin=self\nstage=cluster\nhost=n2\ncause=It ended: x=1 no more.\nfix=Look.\nclass=ray-gcs\n"
    )
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["verdict"]


def test_a_verdict_that_cannot_be_written_in_one_place_is_written_in_the_others(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    verdict = Verdict.from_error(EndedFromOutside("TERM.", fix="Look."), stage="train", host="n1")

    (problem,) = save_verdict(verdict, [tmp_path / "file", tmp_path / "good"])
    assert str(tmp_path / "file") in problem
    assert "origin=signal" in (tmp_path / "good" / "verdict").read_text()


def test_the_verdict_of_a_training_names_the_signal_that_killed_it() -> None:
    assert Verdict.of_training(0, host="n1").sentence() == "verdict: 0 (train on n1): Training ended with code 0."
    assert "was killed by signal 9" in Verdict.of_training(137, host="n1").cause
    assert "ended with code 7" in Verdict.of_training(7, host="n1").cause


def test_the_phases_file_has_one_line_per_phase(tmp_path: Path) -> None:
    assert save_phases({"join": 2, "train": 1.23456}, tmp_path) == []

    assert (tmp_path / "phases").read_text() == "join=2.000\ntrain=1.235\n"


def test_phases_that_cannot_be_written_are_a_problem_and_no_error(tmp_path: Path) -> None:
    (problem,) = save_phases({}, tmp_path / "none")

    assert str(tmp_path / "none") in problem


def test_the_class_is_the_errors_own_else_that_of_code_and_stage() -> None:
    own = ClusterLost("It ran out of memory.", fix="Give more.", failure_class="memory")

    assert Verdict.from_error(own, stage="train", host="n1").failure_class == "memory"
    assert Verdict.from_error(own, stage="train", host="n1").error().failure_class == "memory"
    assert Verdict.from_error(ClusterLost("x", fix=""), stage="join", host="n1").failure_class == "ray-gcs"
    assert Verdict.of_training(7, host="n1").failure_class == "unknown"
    assert Verdict.of_training(0, host="n1").failure_class == "none"
