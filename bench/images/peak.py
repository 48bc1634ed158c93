"""Peak disk use of a build, against its final use and the estimate.

    .venv/bin/python bench/images/peak.py [--real]

First a stand-in with known sizes: a context of 100 MB, and a step that writes 200 MB and removes half of it. With
--real also verl.cpu on a new base, so that every layer is built (minutes, and a package index). Samples the free space
of the whole file system ten times a second, so nothing else should write to it.
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
from bench.images.sides import CPU, NAME, build_argv
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
    """Context manager that samples the free bytes of a folder; then ``peak`` and ``left`` are the bytes used."""

    def __init__(self, folder: Path, free: Callable[[Path], int] = disk.free_bytes) -> None:
        self._folder, self._free, self._stop = folder, free, threading.Event()
        self._begun = self._least = free(folder)
        self._thread = threading.Thread(target=self._sample)
        self.peak = self.left = 0

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.left = self._begun - self._free(self._folder)
        self.peak = max(self._begun - self._least, self.left)

    def _sample(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self._least = min(self._least, self._free(self._folder))


def build_standin() -> str:
    """Build the stand-in, and return its name."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "data").write_bytes(os.urandom(100 * MB))
        Path(folder, "Dockerfile").write_text(
            STAND_IN.format(base=base_image.ensure(), half=100 * MB), encoding="utf-8"
        )
        run(build_argv(Path(folder), "peak"), choose().environment)
    return f"{NAME}:peak"


def measure(title: str, build_image: Callable[[], str], base: str, estimate: float = 0.0) -> None:
    """Print the peak, the final use, the size of the image's layers above its base, and the peak over that."""
    with Watch(data_root()) as used:
        name = build_image()
    layers = get(name).attrs["Size"] - get(base).attrs["Size"]
    estimated = f", estimate {estimate / MB:.0f} MB, {estimate / used.peak:.2f} of the peak" if estimate else ""
    print(
        f"{title}: peak {used.peak / MB:.0f} MB, {used.left / MB:.0f} MB left, layers {layers / MB:.0f} MB: "
        f"the peak is {used.peak / layers:.2f} of them (bar 1.2){estimated}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="also verl.cpu")
    options = parser.parse_args()
    os.environ["VERLJOB_DOCKER"] = choose().client
    measure("a stand-in that uses 400 MB and leaves 300", build_standin, base_image.ensure())
    if options.real:
        base, name = fresh_base(), f"{NAME}:peak-real"

        def build_real() -> str:
            build.build(build.BuildRequest(CPU, [name], base), Site.read(), progress=Progress())
            return name

        measure("verl.cpu", build_real, base, disk.estimated_bytes(CPU, name, disk.size(base)))
    for image in [*daemon().images.list(NAME), *daemon().images.list("verljob-bench-cold")]:
        for tag in image.tags:
            daemon().images.remove(tag)


if __name__ == "__main__":
    main()
