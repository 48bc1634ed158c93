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
"""`utilisation_percent` and `memory_used_bytes`; None where the driver does not say."""


class Watch:
    """The GPUs over a step: drivers tell of the last second at most, and when verl logs a step they are idle."""

    def __init__(self, look: Callable[[], list[Gpu]]) -> None:
        self._look = look
        self._seen: list[list[Gpu]] = []

    async def follow(self) -> None:
        """Look every EVERY_S seconds, until cancelled; where there is none, once."""
        there = await self._take()
        while there:
            await asyncio.sleep(EVERY_S)
            await self._take()

    async def since(self) -> list[Gpu]:
        """Return the mean use and the most memory of each GPU since the last call, this moment included."""
        await self._take()
        seen, self._seen = self._seen, []
        return _over(seen)

    async def _take(self) -> bool:
        seen = await asyncio.get_running_loop().run_in_executor(None, self._look)
        if seen:
            self._seen.append(seen)
        return bool(seen)


def read_usage(platform: str, mask: str = "") -> list[Gpu]:
    """Return what each GPU does, none where there is none or its driver does not answer.

    With a ``mask``, numbers or UUIDs, only the GPUs that it names, in its order: drivers know nothing of masks.
    """
    table = platforms.find(platform)
    if table.use_files:
        busy, used = table.use_files
        found = _from_files(busy, used, {Path(device).name for device in table.usable_devices()})
    else:
        found = _from_answer(_answer(table.use_command)) if table.use_command else []
    if not mask:
        return [gpu for _, gpu in found]
    return visible_devices.named([gpu for _, gpu in found], [uuid for uuid, _ in found], mask)


def memory_bytes(platform: str) -> int | None:
    """Return the memory of the smallest GPU, None where there is none or its driver does not answer."""
    table = platforms.find(platform)
    sizes = [_read(Path(file)) for file in glob(table.memory_files)] if table.memory_files else []
    if table.memory_command:
        sizes = [size << 20 for line in _answer(table.memory_command).split() if (size := _integer(line)) is not None]
    return min((size for size in sizes if size), default=None)


def _from_files(busy: str, used: str, usable: Collection[str]) -> list[tuple[str, Gpu]]:
    """Two patterns of files, one file a GPU each: percent and bytes.

    /sys shows a container every card of the host: those whose render nodes it was not given are somebody else's.
    """
    cards = sorted(map(Path, glob(used)), key=_number_of_card)
    return [
        ("", {"utilisation_percent": _read(path.with_name(Path(busy).name)), "memory_used_bytes": _read(path)})
        for path in cards
        if any(node.name in usable for node in path.parent.glob("drm/renderD*"))
    ]


def _answer(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _from_answer(answer: str) -> list[tuple[str, Gpu]]:
    """A line a GPU, `UUID, percent, MiB`; what is no number is None."""
    lines = [line.split(",") for line in answer.splitlines() if line.count(",") == 2]
    found = [(uuid.strip(), _integer(percent), _integer(mebibytes)) for uuid, percent, mebibytes in lines]
    return [
        (uuid, {"utilisation_percent": percent, "memory_used_bytes": None if mebibytes is None else mebibytes << 20})
        for uuid, percent, mebibytes in found
    ]


def _over(looks: Sequence[list[Gpu]]) -> list[Gpu]:
    """A GPU that a look misses, since the driver lost it, is left out of all."""
    found: list[Gpu] = []
    for one in zip(*looks):
        percents = [gpu["utilisation_percent"] for gpu in one if gpu["utilisation_percent"] is not None]
        used = [gpu["memory_used_bytes"] for gpu in one if gpu["memory_used_bytes"] is not None]
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


def _number_of_card(path: Path) -> int:
    """Of /sys/class/drm/card10/device/…: cards come by number, not as words do."""
    return int("".join(filter(str.isdigit, path.parent.parent.name)) or 0)
