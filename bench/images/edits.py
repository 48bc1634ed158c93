"""Time from a one-line edit of verl to a runnable image, against other ways."""

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

from bench.images.sides import CPU, NAME, ROOT, Sides, idle_base, plain, told, turns
from images.builds import build, builder
from images.builds.site import Site
from images.context import verl_source
from images.engine.client import choose
from images.engine.daemon import daemon
from images.host.process import run
from images.report.progress import Progress

# What somebody writes who knows the order: seven steps as ours, and verl last.
BY_HAND = "FROM {base}\n{runs}COPY toolkit/ /opt/verljob/\nCOPY verl/ /opt/verl/\n"
# verl docker/rocm/Dockerfile.rocm_verl-0.3.0.post1: the source comes before what it needs.
OF_VERL = "FROM {base}\nRUN 0\nCOPY . /opt/verl/\n{runs}"
RUNS = "".join(f"RUN step {number}\n" for number in range(5))


def package(folder: Path) -> Path:
    """verl of verl.cpu:latest as a checkout that has nothing else."""
    where = "import importlib.util as u; print(u.find_spec('verl').submodule_search_locations[0])"
    place = daemon().containers.run("verl.cpu:latest", ["python3", "-c", where], remove=True).decode().split()[-1]
    container = daemon().containers.create("verl.cpu:latest", ["never-started"])
    try:
        chunks, _ = container.get_archive(place)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            archive.extractall(folder, filter="data")
    finally:
        container.remove()
    for compiled in list(folder.rglob("__pycache__")):
        shutil.rmtree(compiled)
    return folder


def edit(runs: int, checkout: Path | None) -> None:
    """A one-line edit of verl to an image: ours as a call and as a command, and others."""
    idle = idle_base()
    with tempfile.TemporaryDirectory() as place:
        verl, hand, theirs = Path(place, "verl"), Path(place, "hand"), Path(place, "theirs")
        if checkout:
            shutil.copytree(checkout, verl, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__"))
        else:
            package(verl)
        for folder, text in ((hand, BY_HAND), (theirs, OF_VERL)):
            folder.mkdir()
            (folder / "Dockerfile").write_text(text.format(base=idle, runs=RUNS))
            shutil.copytree(verl, folder / "verl", symlinks=True)
        shutil.copytree(ROOT / "entrypoints", hand / "toolkit", ignore=shutil.ignore_patterns("__pycache__"))
        variant, source = verl_source.from_flags(CPU, str(verl), False, lambda _: {})
        request = build.BuildRequest(variant, [f"{NAME}:call"], idle, verl=source)

        def edited() -> None:
            for each in (verl / "verl", hand / "verl/verl", theirs / "verl/verl"):
                with (each / "__init__.py").open("a") as file:
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
        classic = [choose().client, "build", "--quiet", "--tag", f"{NAME}:classic", str(hand)]
        spent = Spent()
        sides: Sides = {
            "ours, as a call": lambda: spent.over(ours),
            "ours, as a command": partial(run, [*command, f"--tag={NAME}:command", "--progress=quiet"]),
            "by hand, BuildKit": partial(run, plain(hand, "hand"), choose().environment),
            "by hand, classic builder": partial(run, classic, {"DOCKER_BUILDKIT": "0"}),
            "verl's order, BuildKit": partial(run, plain(theirs, "theirs"), choose().environment),
        }
        for side in sides.values():
            side()
        spent.forget()
        files = [path for path in verl.rglob("*") if path.is_file()]
        told(f"a one-line edit of verl, of {len(files)} files", found := turns(sides, runs, edited))
        after_s = statistics.median(spent.after)
        of_command = after_s / statistics.median(found["ours, as a command"])
        print(
            f"  report and record take {1000 * after_s:.0f} ms: "
            f"{spent.share():.1%} of a call, {of_command:.1%} of a command"
        )
        print(f"  a push of the edit sends verl's layer, as gzip {_packed(verl / 'verl') / 1e6:.2f} MB")


class Spent:
    """What of builds their report and record take after the image is there."""

    def __init__(self) -> None:
        self.after: list[float] = []
        self.wholes: list[float] = []
        write = builder.BuildRecords.write

        def timed(records: builder.BuildRecords, result: builder.BuildResult) -> str:
            begun = time.monotonic()
            told = write(records, result)
            self.after[-1] += time.monotonic() - begun
            return told

        setattr(builder.BuildRecords, "write", timed)  # noqa: B010

    def over(self, build_: Callable[[], None]) -> None:
        self.after.append(0.0)
        begun = time.monotonic()
        build_()
        self.wholes.append(time.monotonic() - begun)

    def forget(self) -> None:
        self.after.clear()
        self.wholes.clear()

    def share(self) -> float:
        return statistics.median(part / whole for part, whole in zip(self.after, self.wholes))


def _packed(folder: Path) -> int:
    packed = io.BytesIO()
    with tarfile.open(fileobj=gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6), mode="w|") as archive:
        archive.add(folder, ".")
    return len(packed.getvalue())
