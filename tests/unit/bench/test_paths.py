"""Benchmarks can be imported, and their constants name existing files of this checkout."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.support.paths import CHECKOUT

MODULES = sorted((CHECKOUT / "bench").rglob("*.py"))
REPLACES_RAY = "bench/launch/standin_ray.py"  # it enters modules of ray into sys.modules


@pytest.mark.parametrize("file", [str(file.relative_to(CHECKOUT)) for file in MODULES])
def test_files_of_a_benchmark_exist(file: str) -> None:
    if file == REPLACES_RAY:
        return
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    paths = [value for value in vars(module).values() if isinstance(value, Path) and value.is_relative_to(CHECKOUT)]

    assert [path for path in paths if ".build" not in path.parts and not path.exists()] == []


def test_crowd_copies_the_checkout() -> None:
    crowd = importlib.import_module("bench.launch.crowd")

    assert (crowd.CHECKOUT / "slurm" / "launch.sh").exists()
    assert all((crowd.FOLDER / name).exists() for name in ("containers.sh", "guide.sh", "standin_ray.py"))
