from __future__ import annotations

import json
from pathlib import Path

import pytest
from verl_node import prepare, stage

from tests.support.paths import CHECKOUT

RECIPES = CHECKOUT / "slurm" / "recipes"


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments of each preparation, which makes nothing."""
    calls: list[list[str]] = []

    def main(arguments: list[str]) -> int:
        calls.append(arguments)
        return 0

    monkeypatch.setattr(prepare, "main", main)
    monkeypatch.setattr(stage, "installed", lambda _: "0.9.1")
    return calls


def test_what_a_job_of_the_recipe_needs_is_prepared(prepared: list[list[str]], tmp_path: Path) -> None:
    recipe = str(RECIPES / "gsm8k_grpo.yaml")

    assert stage.main(["--recipe", recipe, "--data-dir", str(tmp_path), "--source", "/raw", "--model", "Org/Name"]) == 0
    assert prepared == [
        ["--data-dir", str(tmp_path), "--source", "/raw", "--dataset", "gsm8k", "--model", "Org/Name"],
    ]


def test_an_override_of_the_model_wins(prepared: list[list[str]], tmp_path: Path) -> None:
    recipe, override = str(RECIPES / "gsm8k_grpo.yaml"), "actor_rollout_ref.model.path=Org/Other"

    assert stage.main(["--recipe", recipe, "--data-dir", str(tmp_path), "--", override]) == 0
    assert "Org/Other" in prepared[0]


def test_a_bad_override_has_the_code_of_a_job(
    prepared: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--recipe", str(RECIPES / "gsm8k_grpo.yaml"), "--data-dir", str(tmp_path), "--", "trainer.nnodes=3"]

    assert stage.main(arguments) == 65
    assert "trainer.nnodes=3 contradicts" in capsys.readouterr().err
    assert prepared == []


def test_a_missing_file_of_the_user_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stage, "installed", lambda _: "0.9.1")
    files = [f"data.{name}_files={tmp_path}/absent.parquet" for name in ("train", "val")]

    assert stage.main(["--recipe", str(RECIPES / "demo_cpu.yaml"), "--data-dir", str(tmp_path), "--", *files]) == 66
    assert "absent.parquet does not exist" in json.loads(capsys.readouterr().out.splitlines()[-1])["cause"]
