"""What the GPUs of a node do now, by the files or the command of their platform."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import Optional

from verl_node import platforms

TIMEOUT_S = 10.0

Gpu = dict[str, Optional[int]]
"""`utilisation_percent` and `memory_used_bytes`; None where the driver does not say."""


def of(platform: str) -> list[Gpu]:
    """Return what each GPU does, none where there is none or its driver does not answer."""
    table = platforms.of(platform)
    if table.use_files:
        return _from_files(*table.use_files)
    return _from_answer(_answer(table.use_command)) if table.use_command else []


def _from_files(busy: str, used: str) -> list[Gpu]:
    """Two patterns of files, one file a GPU each: percent and bytes."""
    cards = sorted(map(Path, glob(used)), key=_number_of_card)
    return [
        {"utilisation_percent": _read(path.with_name(Path(busy).name)), "memory_used_bytes": _read(path)}
        for path in cards
    ]


def _answer(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _from_answer(answer: str) -> list[Gpu]:
    """A line a GPU, `percent, MiB`; what is no number is None."""
    pairs = [line.split(",", 1) for line in answer.splitlines() if "," in line]
    found = [(_integer(percent), _integer(mebibytes)) for percent, mebibytes in pairs]
    return [
        {"utilisation_percent": percent, "memory_used_bytes": None if mebibytes is None else mebibytes << 20}
        for percent, mebibytes in found
    ]


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
