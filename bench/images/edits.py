"""Seconds from a one-line edit of verl to a runnable image, against other ways to build."""

from __future__ import annotations

import gzip
import io
import shutil
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.images.sides import CPU, NAME, ROOT, Sides, build_argv, build_idle_base, print_ratios, take_turns
from images.builds import build, builder
from images.builds.site import Site
from images.context import verl_source
from images.engine.client import choose
from images.engine.daemon import daemon
from images.host.process import run
from images.report.progress import Progress

# An ideal Dockerfile: seven steps like ours, and verl last.
IDEAL = "FROM {base}\n{runs}COPY toolkit/ /opt/verljob/\nCOPY verl/ /opt/verl/\n"
# verl docker/rocm/Dockerfile.rocm_verl-0.3.0.post1: the source comes before its dependencies.
OF_VERL = "FROM {base}\nRUN 0\nCOPY . /opt/verl/\n{runs}"
RUNS = "".join(f"RUN step {number}\n" for number in range(5))


def copy_package(folder: Path) -> None:
    """Copy verl's package out of verl.cpu:latest, as a checkout without other files."""
    locate = "import importlib.util as u; print(u.find_spec('verl').submodule_search_locations[0])"
    path = daemon().containers.run("verl.cpu:latest", ["python3", "-c", locate], remove=True).decode().split()[-1]
    container = daemon().containers.create("verl.cpu:latest", ["never-started"])
    try:
        chunks, _ = container.get_archive(path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            archive.extractall(folder, filter="data")
    finally:
        container.remove()
    for compiled in list(folder.rglob("__pycache__")):
        shutil.rmtree(compiled)


def measure_edit(runs: int, checkout: Path | None) -> None:
    """Build an image after a one-line edit of verl: ours as a call and as a command, and other ways."""
    idle = build_idle_base()
    with tempfile.TemporaryDirectory() as name:
        verl, ideal, theirs = Path(name, "verl"), Path(name, "ideal"), Path(name, "theirs")
        if checkout:
            shutil.copytree(checkout, verl, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__"))
        else:
            copy_package(verl)
        for folder, text in ((ideal, IDEAL), (theirs, OF_VERL)):
            folder.mkdir()
            (folder / "Dockerfile").write_text(text.format(base=idle, runs=RUNS))
            shutil.copytree(verl, folder / "verl", symlinks=True)
        shutil.copytree(ROOT / "entrypoints", ideal / "toolkit", ignore=shutil.ignore_patterns("__pycache__"))
        variant, source = verl_source.from_flags(CPU, str(verl), False, lambda _: {})
        request = build.BuildRequest(variant, [f"{NAME}:call"], idle, verl=source)

        def edit() -> None:
            for package in (verl / "verl", ideal / "verl/verl", theirs / "verl/verl"):
                with (package / "__init__.py").open("a") as file:
                    file.write(f"# {time.time_ns()}\n")

        def ours() -> None:
            build.build(request, Site.read(), progress=Progress())

        command = [
            sys.executable,
            "-m",
            "invoke",
            f"--search-root={ROOT}",
            "build",
            "--platform=cpu",
            f"--verl={verl}",
            f"--base={idle}",
        ]
        classic = [choose().client, "build", "--quiet", "--tag", f"{NAME}:classic", str(ideal)]
        stopwatch = Stopwatch()
        sides: Sides = {
            "ours, as a call": lambda: stopwatch.run(ours),
            "ours, as a command": partial(run, [*command, f"--tag={NAME}:command", "--progress=quiet"]),
            "ideal order, BuildKit": partial(run, build_argv(ideal, "ideal"), choose().environment),
            "ideal order, classic builder": partial(run, classic, {"DOCKER_BUILDKIT": "0"}),
            "verl's order, BuildKit": partial(run, build_argv(theirs, "theirs"), choose().environment),
        }
        for side in sides.values():
            side()
        stopwatch.reset()
        files = [path for path in verl.rglob("*") if path.is_file()]
        seconds = take_turns(sides, runs, edit)
        print_ratios(f"a one-line edit of verl, of {len(files)} files", seconds)
        records_s = statistics.median(stopwatch.records)
        of_command = records_s / statistics.median(seconds["ours, as a command"])
        print(
            f"  report and record take {1000 * records_s:.0f} ms: "
            f"{stopwatch.share():.1%} of a call, {of_command:.1%} of a command"
        )
        print(f"  a push of the edit sends verl's layer, as gzip {_compressed_bytes(verl / 'verl') / 1e6:.2f} MB")


class Stopwatch:
    """Seconds of builds, and of their report and record, which are written after the image is built."""

    def __init__(self) -> None:
        self.records: list[float] = []
        self.builds: list[float] = []
        write = builder.BuildRecords.write

        def timed(records: builder.BuildRecords, result: builder.BuildResult) -> str:
            begun = time.monotonic()
            written = write(records, result)
            self.records[-1] += time.monotonic() - begun
            return written

        setattr(builder.BuildRecords, "write", timed)  # noqa: B010

    def run(self, build_: Callable[[], None]) -> None:
        self.records.append(0.0)
        begun = time.monotonic()
        build_()
        self.builds.append(time.monotonic() - begun)

    def reset(self) -> None:
        self.records.clear()
        self.builds.clear()

    def share(self) -> float:
        return statistics.median(part / whole for part, whole in zip(self.records, self.builds))


def _compressed_bytes(folder: Path) -> int:
    packed = io.BytesIO()
    with tarfile.open(fileobj=gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6), mode="w|") as archive:
        archive.add(folder, ".")
    return len(packed.getvalue())
