"""Version numbers that compare."""

from __future__ import annotations

import re

Version = tuple[int, int]


def parse(text: str) -> Version:
    """Return major and minor: ``2.44.1`` is (2, 44). Raises ValueError."""
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(f"{text!r} is no version")
    return int(found[1]), int(found[2])
