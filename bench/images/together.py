"""Simultaneous builds against the lower bound of their time."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

from bench.images.sides import build_argv
from images.builds import build_all
from images.engine import base_image
from images.engine.client import choose
from images.host.process import Commands

LENGTHS = (1, 1, 1, 1, 1, 4)  # of the simultaneous builds


def measure_together(runs: int) -> None:
    """Compare simultaneous builds with their lower bound: the longest build, or all CPU seconds over the cores."""
    _measure("work, two at a time", "i=0; while [ $i -lt {n}000000 ]; do i=$((i+1)); done", build_all.JOBS, runs)
    _measure("waiting, all at a time", "sleep {n}", len(LENGTHS), runs)


def _measure(title: str, step: str, jobs: int, runs: int) -> None:
    """Measure every build by itself, then all of them, ``jobs`` at a time; the last one is the longest."""
    engine, debian = choose(), base_image.ensure()
    ratios, wall, bounds = [], [], []
    with tempfile.TemporaryDirectory() as name:

        def build(number: int) -> str:
            folder = Path(name, str(number))
            folder.mkdir(exist_ok=True)
            text = f"FROM {debian}\nRUN {step.format(n=LENGTHS[number])}; echo {time.time_ns()}\n"
            (folder / "Dockerfile").write_text(text)
            Commands().watch(build_argv(folder, f"together-{number}"), engine.environment, lambda _: None)
            return ""

        for _ in range(runs):
            single_s, busy_s = [], _busy_s()
            for number in range(len(LENGTHS)):
                begun = time.monotonic()
                build(number)
                single_s.append(time.monotonic() - begun)
            bound = max([*single_s, (_busy_s() - busy_s) / (os.cpu_count() or 1)])
            targets = [
                build_all.Target(str(number), partial(build, number), {}, seconds)
                for number, seconds in enumerate(single_s)
            ]
            begun = time.monotonic()
            build_all.run(targets, jobs)
            wall.append(time.monotonic() - begun)
            bounds.append(bound)
            ratios.append(wall[-1] / bound)
    print(
        f"{len(LENGTHS)} builds, {title}: {statistics.median(wall):.2f} s, bound {statistics.median(bounds):.2f} s: "
        f"{statistics.median(ratios):.2f} of it ({min(ratios):.2f} to {max(ratios):.2f})",
        flush=True,
    )


def _busy_s() -> float:
    """Return the CPU seconds of the whole machine since it started; nothing else should run on it."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(fields[column]) for column in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")
