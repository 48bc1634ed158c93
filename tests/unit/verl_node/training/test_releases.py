"""Requirements of a verl release."""

from __future__ import annotations

import pytest
from verl_node.training import releases


@pytest.mark.parametrize(("version", "gpus", "least"), [("0.9.1", 1, 4), ("0.9.1", 8, 25), ("0.4.1", 8, 9)])
def test_release_gives_the_minimum_of_cpus(version: str, gpus: int, least: int) -> None:
    assert releases.load(version).least_cpus(gpus) == least
