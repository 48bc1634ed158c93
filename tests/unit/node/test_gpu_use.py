"""Recorded: nvidia-smi on an H200 at work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from verl_node import gpu_use, platforms

ROCM = platforms.PLATFORMS["rocm"]


def fake(folder: Path, script: str) -> None:
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)


def test_nvidia_gpus_are_read_in_percent_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    asked = platforms.PLATFORMS["cuda"].use_command[1]
    fake(tmp_path, f'[ "$1" = "{asked}" ] && echo "100, 3699" && echo "0, 0" && echo "[N/A], [N/A]"')
    assert gpu_use.of("cuda") == [
        {"utilisation_percent": 100, "memory_used_bytes": 3699 * 1024 * 1024},
        {"utilisation_percent": 0, "memory_used_bytes": 0},
        {"utilisation_percent": None, "memory_used_bytes": None},
    ]


def test_a_node_without_gpus_or_with_a_broken_driver_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_use.of("cuda") == []
    fake(tmp_path, 'echo "NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver."; exit 9')
    assert gpu_use.of("cuda") == []
    assert gpu_use.of("rocm") == gpu_use.of("cpu") == []


def test_amd_gpus_are_read_from_the_kernels_files_in_the_order_of_their_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tuple(str(tmp_path / "card[0-9]*" / "device" / Path(file).name) for file in ROCM.use_files)
    monkeypatch.setitem(platforms.PLATFORMS, "rocm", replace(ROCM, use_files=files))
    for card, busy, used in (("card10", "7\n", "2048\n"), ("card2", "93\n", "206158430208\n"), ("card3", "?", "1\n")):
        device = tmp_path / card / "device"
        device.mkdir(parents=True)
        (device / "gpu_busy_percent").write_text(busy)
        (device / "mem_info_vram_used").write_text(used)
    (tmp_path / "card0" / "device").mkdir(parents=True)  # the board's own display has neither file
    assert gpu_use.of("rocm") == [
        {"utilisation_percent": 93, "memory_used_bytes": 206158430208},
        {"utilisation_percent": None, "memory_used_bytes": 1},
        {"utilisation_percent": 7, "memory_used_bytes": 2048},
    ]
