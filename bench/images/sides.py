"""Shared parts of the build benchmarks: sides that take turns, and a base whose steps take no time."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from images.catalog.catalog import Catalog
from images.engine import base_image
from images.engine.client import choose
from images.host.process import run

ROOT = Path(__file__).resolve().parents[2]
NAME = "verljob-bench"
CPU = Catalog.read().find("cpu")
Sides = Mapping[str, Callable[[], object]]


def turns(sides: Sides, runs: int, before: Callable[[], None] = lambda: None) -> dict[str, list[float]]:
    """Seconds of each side, in turns; every other time in the other order."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(runs):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            before()
            begun = time.monotonic()
            sides[name]()
            found[name].append(time.monotonic() - begun)
    return found


def told(what: str, found: Mapping[str, list[float]]) -> None:
    """A line for each side: median, range, and how much of it the first side takes."""
    medians = {name: statistics.median(times) for name, times in found.items()}
    first = next(iter(medians.values()))
    print(what)
    for name, times in found.items():
        spread = f"{min(times):.2f} to {max(times):.2f}"
        print(
            f"  {name:24} {medians[name]:6.2f} s ({spread}), ours takes {first / medians[name]:.2f} of it", flush=True
        )


def idle_base() -> str:
    """A Debian whose /bin/sh does nothing."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Dockerfile").write_text(f'FROM {base_image.ensure()}\nRUN ["cp", "/bin/true", "/bin/sh"]\n')
        engine = choose()
        run(engine.build_argv(["--tag", f"{NAME}:idle", folder]), engine.environment)
    return f"{NAME}:idle"


def plain(folder: Path, tag: str, *words: str) -> list[str]:
    """`docker build` with BuildKit of a folder."""
    return choose().build_argv(["--quiet", "--tag", f"{NAME}:{tag}", *words, str(folder)])
