"""Recorded: verl 0.9.1's file and console logger in a run of demo_cpu on two nodes, nvidia-smi on an H200 at work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from verl_node import metrics

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture
def file_log(tmp_path: Path) -> Path:
    return Path(shutil.copy(RECORDED / "verl-0.9.1.jsonl", tmp_path / "verl.jsonl"))


def test_a_row_has_verls_phases_in_seconds_apart_from_its_metrics(file_log: Path) -> None:
    (_, record), _ = metrics.new_records(file_log, 0)
    gpus: list[metrics.Gpu] = [{"utilisation_percent": 97, "memory_used_bytes": 1 << 30}]
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
    lines = (RECORDED / "console-0.9.1.txt").read_text().splitlines()
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


def fake(folder: Path, script: str) -> None:
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)


def test_nvidia_gpus_are_read_in_percent_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fake(tmp_path, f'[ "$1" = "{metrics.NVIDIA_SMI[1]}" ] && echo "100, 3699" && echo "0, 0" && echo "[N/A], [N/A]"')
    assert metrics.gpus(tmp_path / "no sysfs") == [
        {"utilisation_percent": 100, "memory_used_bytes": 3699 * 1024 * 1024},
        {"utilisation_percent": 0, "memory_used_bytes": 0},
        {"utilisation_percent": None, "memory_used_bytes": None},
    ]


def test_a_node_without_gpus_or_with_a_broken_driver_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert metrics.gpus(tmp_path) == []
    fake(tmp_path, 'echo "NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver."; exit 9')
    assert metrics.gpus(tmp_path) == []


def test_amd_gpus_are_read_from_the_kernels_files_in_the_order_of_their_cards(tmp_path: Path) -> None:
    for card, busy, used in (("card10", "7\n", "2048\n"), ("card2", "93\n", "206158430208\n"), ("card3", "?", "1\n")):
        device = tmp_path / card / "device"
        device.mkdir(parents=True)
        (device / "gpu_busy_percent").write_text(busy)
        (device / "mem_info_vram_used").write_text(used)
    (tmp_path / "card0" / "device").mkdir(parents=True)  # the board's own display has neither file
    assert metrics.gpus(tmp_path) == [
        {"utilisation_percent": 93, "memory_used_bytes": 206158430208},
        {"utilisation_percent": None, "memory_used_bytes": 1},
        {"utilisation_percent": 7, "memory_used_bytes": 2048},
    ]
