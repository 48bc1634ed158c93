"""Shared parts of the build benchmarks: sides that take turns, and a base image whose steps take no time."""

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


def take_turns(sides: Sides, runs: int, before: Callable[[], None] = lambda: None) -> dict[str, list[float]]:
    """Run the sides in turns, every other round in reverse order; return the seconds of each run."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(runs):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            before()
            begun = time.monotonic()
            sides[name]()
            seconds[name].append(time.monotonic() - begun)
    return seconds


def print_ratios(title: str, seconds: Mapping[str, list[float]]) -> None:
    """Print a line for each side: median, range, and the ratio of the first side's median to it."""
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    first = next(iter(medians.values()))
    print(title)
    for name, times in seconds.items():
        spread = f"{min(times):.2f} to {max(times):.2f}"
        print(
            f"  {name:24} {medians[name]:6.2f} s ({spread}), ours takes {first / medians[name]:.2f} of it", flush=True
        )


def build_idle_base() -> str:
    """Build a Debian whose /bin/sh is /bin/true."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Dockerfile").write_text(f'FROM {base_image.ensure()}\nRUN ["cp", "/bin/true", "/bin/sh"]\n')
        engine = choose()
        run(engine.build_argv(["--tag", f"{NAME}:idle", folder]), engine.environment)
    return f"{NAME}:idle"


def build_argv(folder: Path, tag: str, *flags: str) -> list[str]:
    """Return the `docker build` command with BuildKit for a folder."""
    return choose().build_argv(["--quiet", "--tag", f"{NAME}:{tag}", *flags, str(folder)])
