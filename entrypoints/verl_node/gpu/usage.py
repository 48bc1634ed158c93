"""GPU utilisation and memory use, from the platform's files or command."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Collection, Sequence
from glob import glob
from pathlib import Path
from typing import Optional

from verl_node.gpu import platforms, visible_devices

TIMEOUT_S = 10.0
EVERY_S = 2.0

Gpu = dict[str, Optional[int]]
"""`utilisation_percent` and `memory_used_bytes`; None if the driver does not report them."""


class Watch:
    """Samples of GPU usage over a step; drivers report only the last second."""

    def __init__(self, read: Callable[[], list[Gpu]]) -> None:
        self._read = read
        self._samples: list[list[Gpu]] = []

    async def follow(self) -> None:
        """Sample every EVERY_S seconds, until cancelled; return after one sample without a GPU."""
        has_gpus = await self._sample()
        while has_gpus:
            await asyncio.sleep(EVERY_S)
            await self._sample()

    async def since(self) -> list[Gpu]:
        """Return mean use and maximum memory of each GPU since the last call."""
        await self._sample()
        samples, self._samples = self._samples, []
        return _summary(samples)

    async def _sample(self) -> bool:
        sample = await asyncio.get_running_loop().run_in_executor(None, self._read)
        if sample:
            self._samples.append(sample)
        return bool(sample)


def read_usage(platform: str, mask: str = "") -> list[Gpu]:
    """Return the usage of each GPU; empty without GPUs or an answer of their driver.

    With a ``mask`` of numbers or UUIDs, only of the GPUs in it, in its order: drivers ignore masks.
    """
    table = platforms.find(platform)
    if table.use_files:
        busy, used = table.use_files
        found = _from_files(busy, used, {Path(device).name for device in table.usable_devices()})
    else:
        found = _parse(_output(table.use_command)) if table.use_command else []
    if not mask:
        return [gpu for _, gpu in found]
    return visible_devices.select([gpu for _, gpu in found], [uuid for uuid, _ in found], mask)


def memory_bytes(platform: str) -> int | None:
    """Return the memory of the smallest GPU, None without GPUs or an answer of their driver."""
    table = platforms.find(platform)
    sizes = [_read(Path(file)) for file in glob(table.memory_files)] if table.memory_files else []
    if table.memory_command:
        sizes = [size << 20 for line in _output(table.memory_command).split() if (size := _integer(line)) is not None]
    return min((size for size in sizes if size), default=None)


def _from_files(busy: str, used: str, usable: Collection[str]) -> list[tuple[str, Gpu]]:
    """Read each card's files with percent and bytes, given by two patterns.

    In a container /sys has every card of the host; cards without a ``usable`` render node belong to other jobs.
    """
    cards = sorted(map(Path, glob(used)), key=_card_number)
    return [
        ("", {"utilisation_percent": _read(path.with_name(Path(busy).name)), "memory_used_bytes": _read(path)})
        for path in cards
        if any(node.name in usable for node in path.parent.glob("drm/renderD*"))
    ]


def _output(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _parse(output: str) -> list[tuple[str, Gpu]]:
    """Parse a line `UUID, percent, MiB` per GPU; a field that is not a number becomes None."""
    lines = [line.split(",") for line in output.splitlines() if line.count(",") == 2]
    found = [(uuid.strip(), _integer(percent), _integer(mebibytes)) for uuid, percent, mebibytes in lines]
    return [
        (uuid, {"utilisation_percent": percent, "memory_used_bytes": None if mebibytes is None else mebibytes << 20})
        for uuid, percent, mebibytes in found
    ]


def _summary(samples: Sequence[list[Gpu]]) -> list[Gpu]:
    """Return mean use and maximum memory of each GPU that is in all samples."""
    found: list[Gpu] = []
    for of_gpu in zip(*samples):
        percents = [gpu["utilisation_percent"] for gpu in of_gpu if gpu["utilisation_percent"] is not None]
        used = [gpu["memory_used_bytes"] for gpu in of_gpu if gpu["memory_used_bytes"] is not None]
        mean = round(sum(percents) / len(percents)) if percents else None
        found.append({"utilisation_percent": mean, "memory_used_bytes": max(used, default=None)})
    return found


def _read(path: Path) -> int | None:
    try:
        return _integer(path.read_text())
    except OSError:
        return None


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _card_number(path: Path) -> int:
    """Return 10 for /sys/class/drm/card10/device/…, to sort cards by number."""
    return int("".join(filter(str.isdigit, path.parent.parent.name)) or 0)
