from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from verl_node import prepare

from tests.support.paths import ENTRYPOINTS


def reports(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_phases_are_reported_with_their_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.parquet"
    file.touch()
    assert prepare.main(["--data-dir", str(tmp_path), "--file", str(file)]) == 0
    events = reports(capsys.readouterr().out)
    assert [(event["phase"], event["event"]) for event in events] == [
        *(("data", "begin"), ("data", "end"), ("model", "begin"), ("model", "end"))
    ]
    assert all(event["seconds"] >= 0 for event in events if event["event"] == "end")


def test_error_is_the_last_line_and_gives_the_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "verl_node.prepare", "--data-dir", str(tmp_path), "--model", str(tmp_path)]
    done = subprocess.run(command, env={"PYTHONPATH": str(ENTRYPOINTS)}, capture_output=True, text=True, check=False)
    last = reports(done.stdout)[-1]
    assert (done.returncode, last["code"], last["phase"], last["event"]) == (66, 66, "model", "error")
    assert last["cause"] == f"{tmp_path} has no config.json, so it is not a model folder."
    assert last["fix"]


def test_missing_data_file_of_the_user_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare.main(["--data-dir", str(tmp_path), "--file", str(tmp_path / "mine.parquet")]) == 66
    assert "mine.parquet does not exist on this node" in reports(capsys.readouterr().out)[-1]["cause"]


def test_supervisors_modules_import_neither_torch_nor_ray() -> None:
    code = "import sys, verl_node.training.recipe, verl_node.training.metrics; "
    code += "sys.exit('torch' in sys.modules or 'ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ENTRYPOINTS)}, check=True)
