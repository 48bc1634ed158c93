"""Recorded: verl 0.9.1's file and console logger in a run of demo_cpu on two nodes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from verl_node.gpu.usage import Gpu
from verl_node.training import metrics

from tests.support.paths import RECORDED

VERL = RECORDED / "verl"


@pytest.fixture
def file_log(tmp_path: Path) -> Path:
    return Path(shutil.copy(VERL / "verl-0.9.1.jsonl", tmp_path / "verl.jsonl"))


def test_a_row_has_verls_phases_in_seconds_apart_from_its_metrics(file_log: Path) -> None:
    (_, record), _ = metrics.new_records(file_log, 0)
    gpus: list[Gpu] = [{"utilisation_percent": 97, "memory_used_bytes": 1 << 30}]
    row = json.loads(json.dumps(metrics.row(record, time=12.5, host="gpu-0", gpus=gpus)))
    assert {key: row[key] for key in ("time", "host", "step", "gpus")} == {
        **{"time": 12.5, "host": "gpu-0", "step": 4},
        "gpus": gpus,
    }
    assert {"gen", "old_log_prob", "ref", "update_actor", "update_weights", "step"} <= set(row["phases"])
    assert row["phases"]["step"] > row["phases"]["gen"] > 0
    assert row["metrics"]["actor/grad_norm"] > 0
    assert "val-core/openai/gsm8k/acc/mean@1" in row["metrics"]
    assert not any(name.startswith("timing_s/") for name in row["metrics"])


def test_a_line_that_verl_is_still_writing_is_left_for_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "verl.jsonl"
    assert metrics.new_records(path, 0) == ([], 0)
    path.write_text('{"step": 1, "data": {"a": 1.0}}\n{"step": 2, "da')
    records, offset = metrics.new_records(path, 0)
    assert records == [(1, {"a": 1.0})]
    with path.open("a") as file:
        file.write('ta": {}}\n')
    records, offset = metrics.new_records(path, offset)
    assert records == [(2, {})]
    assert metrics.new_records(path, offset) == ([], offset)


def test_a_log_that_verl_began_anew_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "verl.jsonl"
    path.write_text('{"step": 9, "data": {"a": 1.0, "b": 2.0}}\n')
    _, offset = metrics.new_records(path, 0)
    path.write_text('{"step": 1, "data": {}}\n')
    assert metrics.new_records(path, offset)[0] == [(1, {})]


def test_the_console_line_says_what_the_file_says(file_log: Path) -> None:
    lines = (VERL / "console-0.9.1.txt").read_text().splitlines()
    said = [record for line in lines if (record := metrics.console_record(line))]
    wanted, _ = metrics.new_records(file_log, 0)
    assert [step for step, _ in said] == [step for step, _ in wanted] == [1, 4]
    for (_, console), (_, file) in zip(said, wanted):
        assert console == pytest.approx(file)


def test_the_console_line_of_verl_0_4_is_read_too() -> None:
    # Its format, verl v0.4.1 verl/utils/logger/aggregate_logger.py: f"{k}:{v:.3f}" joined by " - ".
    line = (
        "(TaskRunner pid=77) step:12 - actor/pg_loss:-0.003 - val-core/openai/gsm8k/acc/mean@1:0.500 - a:nan - b:1.000"
    )
    assert metrics.console_record(line) == (
        12,
        {"actor/pg_loss": -0.003, "val-core/openai/gsm8k/acc/mean@1": 0.5, "b": 1.0},
    )


@pytest.mark.parametrize(
    "line", ["", "step:", "Training Progress: 100%|####| 4/4", "global step: 4 - saved", "step:x - a:1"]
)
def test_any_other_line_is_no_step(line: str) -> None:
    assert metrics.console_record(line) is None
