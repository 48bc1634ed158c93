"""Simultaneous builds against the least time that they can take."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

from bench.images.sides import plain
from images.builds import build_all
from images.engine import base_image
from images.engine.client import choose
from images.host.process import Commands

LENGTHS = (1, 1, 1, 1, 1, 4)  # of builds that go on at once


def together(runs: int) -> None:
    """Builds at once against what they must take: the longest alone, or all CPU seconds over the cores."""
    at_once("work, two at a time", "i=0; while [ $i -lt {n}000000 ]; do i=$((i+1)); done", build_all.JOBS, runs)
    at_once("waiting, all at a time", "sleep {n}", len(LENGTHS), runs)


def at_once(what: str, step: str, jobs: int, runs: int) -> None:
    """One of the builds is as long as LENGTHS says, and stands last; each is measured alone before."""
    engine, debian = choose(), base_image.ensure()
    ratios, wall, least = [], [], []
    with tempfile.TemporaryDirectory() as place:

        def one(number: int) -> str:
            folder = Path(place, str(number))
            folder.mkdir(exist_ok=True)
            text = f"FROM {debian}\nRUN {step.format(n=LENGTHS[number])}; echo {time.time_ns()}\n"
            (folder / "Dockerfile").write_text(text)
            Commands().watch(plain(folder, f"together-{number}"), engine.environment, lambda _: None)
            return ""

        for _ in range(runs):
            alone, busy_s = [], _busy_s()
            for number in range(len(LENGTHS)):
                begun = time.monotonic()
                one(number)
                alone.append(time.monotonic() - begun)
            bound = max([*alone, (_busy_s() - busy_s) / (os.cpu_count() or 1)])
            targets = [build_all.Target(str(each), partial(one, each), {}, alone[each]) for each in range(len(LENGTHS))]
            begun = time.monotonic()
            build_all.run(targets, jobs)
            wall.append(time.monotonic() - begun)
            least.append(bound)
            ratios.append(wall[-1] / bound)
    print(
        f"{len(LENGTHS)} builds, {what}: {statistics.median(wall):.2f} s, the least {statistics.median(least):.2f} s: "
        f"{statistics.median(ratios):.2f} of it ({min(ratios):.2f} to {max(ratios):.2f})",
        flush=True,
    )


def _busy_s() -> float:
    """CPU seconds of the whole machine since it started: nothing else should be going on."""
    told = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(told[place]) for place in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")
