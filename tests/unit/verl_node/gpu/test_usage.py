"""GPU usage; nvidia-smi was recorded on a busy H200."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from verl_node.gpu import platforms, usage

ROCM = platforms.PLATFORMS["rocm"]


def fake(folder: Path, script: str) -> None:
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)


def test_nvidia_usage_is_in_percent_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    query = platforms.PLATFORMS["cuda"].use_command[1]
    fake(
        tmp_path,
        f'[ "$1" = "{query}" ] && echo "GPU-1a2b, 100, 3699" && echo "GPU-3c4d, 0, 0" && echo "GPU-3c5e, [N/A], [N/A]"',
    )
    assert usage.read_usage("cuda") == [
        {"utilisation_percent": 100, "memory_used_bytes": 3699 * 1024 * 1024},
        {"utilisation_percent": 0, "memory_used_bytes": 0},
        {"utilisation_percent": None, "memory_used_bytes": None},
    ]


@pytest.mark.parametrize(
    ("mask", "percents"), [("1", [0]), ("2,0", [None, 100]), ("GPU-3c4d", [0]), ("GPU-1a", [100]), ("GPU-9,7", [])]
)
def test_usage_covers_only_gpus_in_the_mask(
    mask: str, percents: list[int | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fake(tmp_path, 'echo "GPU-1a2b, 100, 3699" && echo "GPU-3c4d, 0, 0" && echo "GPU-3c5e, [N/A], [N/A]"')
    assert [gpu["utilisation_percent"] for gpu in usage.read_usage("cuda", mask)] == percents


def test_summary_has_mean_use_and_maximum_memory_since_the_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "EVERY_S", 0.0)
    samples: list[list[tuple[int | None, int | None]]] = [[(100, 5), (None, 1)], [(50, 9), (40, None)]]

    def read() -> list[usage.Gpu]:
        sample = samples.pop(0) if samples else []  # the driver does not answer
        return [{"utilisation_percent": percent, "memory_used_bytes": used} for percent, used in sample]

    async def rows() -> list[list[usage.Gpu]]:
        watch = usage.Watch(read)
        following = asyncio.ensure_future(watch.follow())
        while len(watch._samples) < 2:
            await asyncio.sleep(0)
        following.cancel()
        first = await watch.since()
        samples.append([(7, 7), (0, 7)])
        return [first, await watch.since()]

    first, second = asyncio.run(rows())
    assert [gpu["utilisation_percent"] for gpu in first] == [75, 40]
    assert [gpu["memory_used_bytes"] for gpu in first] == [9, 1]
    assert [gpu["utilisation_percent"] for gpu in second] == [7, 0]


def test_sampling_ends_without_gpus() -> None:
    asyncio.run(asyncio.wait_for(usage.Watch(list).follow(), 5))


def test_usage_is_empty_without_gpus_or_a_working_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert usage.read_usage("cuda") == []
    fake(tmp_path, 'echo "NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver."; exit 9')
    assert usage.read_usage("cuda") == []
    assert usage.read_usage("rocm") == usage.read_usage("cpu") == []


def test_amd_usage_is_read_from_sysfs_in_card_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tuple(str(tmp_path / "card[0-9]*" / "device" / Path(file).name) for file in ROCM.use_files)
    devices = str(tmp_path / "dri" / "renderD*")
    monkeypatch.setitem(platforms.PLATFORMS, "rocm", replace(ROCM, use_files=files, devices=devices))
    (tmp_path / "dri").mkdir()
    cards = (
        ("card10", "7\n", "2048\n"),
        ("card2", "93\n", "206158430208\n"),
        ("card3", "?", "1\n"),
        ("card4", "50\n", "3\n"),
    )
    for number, (card, busy, used) in enumerate(cards, 128):
        device = tmp_path / card / "device"
        (device / "drm" / f"renderD{number}").mkdir(parents=True)
        if card != "card4":  # another job's: in /sys, but not in the container's /dev/dri
            (tmp_path / "dri" / f"renderD{number}").touch()
        (device / "gpu_busy_percent").write_text(busy)
        (device / "mem_info_vram_used").write_text(used)
    (tmp_path / "card0" / "device").mkdir(parents=True)  # the board's own display has neither file
    assert usage.read_usage("rocm") == [
        {"utilisation_percent": 93, "memory_used_bytes": 206158430208},
        {"utilisation_percent": None, "memory_used_bytes": 1},
        {"utilisation_percent": 7, "memory_used_bytes": 2048},
    ]
    assert usage.read_usage("rocm", "2") == [{"utilisation_percent": 7, "memory_used_bytes": 2048}]
