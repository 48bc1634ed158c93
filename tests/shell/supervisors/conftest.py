"""A job of two nodes for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node.supervised import Job


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job of two nodes."""
    made = Job(tmp_path, 2)
    yield made
    made.close()
