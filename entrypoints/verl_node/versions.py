"""Version numbers that compare."""

from __future__ import annotations

import re

Version = tuple[int, int]


def parse(text: str) -> Version:
    """Return major and minor: ``2.44.1`` is (2, 44). Raises ValueError."""
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a version")
    return int(match[1]), int(match[2])
