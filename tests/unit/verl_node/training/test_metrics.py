"""Metrics; verl 0.9.1's file and console logger were recorded in a run of demo_cpu on two nodes."""

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


def test_row_separates_phases_from_metrics(file_log: Path) -> None:
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


def test_incomplete_line_is_read_with_the_next_call(tmp_path: Path) -> None:
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


def test_truncated_log_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "verl.jsonl"
    path.write_text('{"step": 9, "data": {"a": 1.0, "b": 2.0}}\n')
    _, offset = metrics.new_records(path, 0)
    path.write_text('{"step": 1, "data": {}}\n')
    assert metrics.new_records(path, offset)[0] == [(1, {})]


def test_console_line_and_file_have_the_same_metrics(file_log: Path) -> None:
    lines = (VERL / "console-0.9.1.txt").read_text().splitlines()
    from_console = [record for line in lines if (record := metrics.console_record(line))]
    from_file, _ = metrics.new_records(file_log, 0)
    assert [step for step, _ in from_console] == [step for step, _ in from_file] == [1, 4]
    for (_, console), (_, file) in zip(from_console, from_file):
        assert console == pytest.approx(file)


def test_console_line_of_verl_0_4_is_parsed() -> None:
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
def test_other_lines_are_ignored(line: str) -> None:
    assert metrics.console_record(line) is None
