"""Peak disk use of a build, against its final use and the estimate.

    .venv/bin/python bench/images/peak.py [--real]

First a stand-in whose truth is known: a context of 100 MB, and a step that writes 200 MB and removes the half of it.
With --real verl.cpu on a base of its own, so that every layer is made (minutes, and a package index). The whole file
system is looked at, ten times a second: nothing else should write to it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.images.cold import fresh_base
from bench.images.sides import CPU, NAME, plain
from images.builds import build, disk
from images.builds.site import Site
from images.engine import base_image
from images.engine.client import choose
from images.engine.daemon import daemon, data_root, get
from images.host.process import run
from images.report.progress import Progress

MB = 1_000_000
STAND_IN = (
    "FROM {base}\nCOPY data /data\n"
    "RUN head -c {half} /dev/urandom > /a && head -c {half} /dev/urandom > /b && sync && sleep 1 && rm /b && sync\n"
)
PERIOD_S = 0.1


class Watch:
    """``with`` it, the fewest free bytes of a folder are looked for; then ``peak`` and ``left`` are what was taken."""

    def __init__(self, folder: Path, free: Callable[[Path], int] = disk.free_bytes) -> None:
        self._folder, self._free, self._over = folder, free, threading.Event()
        self._begun = self._least = free(folder)
        self._thread = threading.Thread(target=self._look)
        self.peak = self.left = 0

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.left = self._begun - self._free(self._folder)
        self.peak = max(self._begun - self._least, self.left)

    def _look(self) -> None:
        while not self._over.wait(PERIOD_S):
            self._least = min(self._least, self._free(self._folder))


def stand_in() -> str:
    """Build it; its name."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "data").write_bytes(os.urandom(100 * MB))
        Path(folder, "Dockerfile").write_text(
            STAND_IN.format(base=base_image.ensure(), half=100 * MB), encoding="utf-8"
        )
        run(plain(Path(folder), "peak"), choose().environment)
    return f"{NAME}:peak"


def told(what: str, make: Callable[[], str], below: str, reckoned: float = 0.0) -> None:
    """A line: the most, what is left, the image's layers above its base, and the most over them."""
    with Watch(data_root()) as seen:
        name = make()
    layers = get(name).attrs["Size"] - get(below).attrs["Size"]
    more = f", reckoned {reckoned / MB:.0f} MB, {reckoned / seen.peak:.2f} of the most" if reckoned else ""
    print(
        f"{what}: at most {seen.peak / MB:.0f} MB, {seen.left / MB:.0f} MB left, layers {layers / MB:.0f} MB: "
        f"the most is {seen.peak / layers:.2f} of them (bar 1.2){more}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="also verl.cpu")
    given = parser.parse_args()
    os.environ["VERLJOB_DOCKER"] = choose().client
    told("a stand-in that takes 400 MB and leaves 300", stand_in, base_image.ensure())
    if given.real:
        below, name = fresh_base(), f"{NAME}:peak-real"

        def real() -> str:
            build.build(build.BuildRequest(CPU, [name], below), Site.read(), progress=Progress())
            return name

        told("verl.cpu", real, below, disk.estimated_bytes(CPU, name, disk.size(below)))
    for image in [*daemon().images.list(NAME), *daemon().images.list("verljob-bench-cold")]:
        for tag in image.tags:
            daemon().images.remove(tag)


if __name__ == "__main__":
    main()
