"""Builds beside what they are held against: unchanged images, a one-line edit of verl, several at once, the report.

    .venv/bin/python bench/builds.py [--runs 5] [--only unchanged edit together report] [--checkout VERL]

On the base of these builds /bin/sh does nothing and ends well: what is timed is the builder, not pip. Ours is the
rendered Dockerfile of verl.cpu, unchanged; verl is that of verl.cpu:latest, which must be here, or a whole checkout of
its repository, all of which the others copy. Sides take turns, and medians are printed with their ratio.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import shutil
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from images import base, build, places, report, report_files, report_text, schedule, source
from images.buildlog import BuildLog
from images.catalog import Catalog
from images.engine import choose, daemon
from images.process import run
from images.progress import Progress
from images.running import Running
from images.site import Site

ROOT = Path(__file__).resolve().parents[1]
NAME = "verljob-bench"
CPU = Catalog.read().find("cpu")
TARGETS = 20
LENGTHS = (1, 1, 1, 1, 1, 4)  # of builds that go on at once
# What somebody writes who knows the order: seven steps as ours, and verl last.
BY_HAND = "FROM {base}\n{runs}COPY toolkit/ /opt/verljob/\nCOPY verl/ /opt/verl/\n"
# verl docker/rocm/Dockerfile.rocm_verl-0.3.0.post1: the source comes before what it needs.
OF_VERL = "FROM {base}\nRUN 0\nCOPY . /opt/verl/\n{runs}"
RUNS = "".join(f"RUN step {number}\n" for number in range(5))
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
        Path(folder, "Dockerfile").write_text(f'FROM {base.ensure()}\nRUN ["cp", "/bin/true", "/bin/sh"]\n')
        engine = choose()
        run(engine.build_argv(["--tag", f"{NAME}:idle", folder]), engine.environment)
    return f"{NAME}:idle"


def plain(folder: Path, tag: str, *words: str) -> list[str]:
    """`docker build` with BuildKit of a folder."""
    return choose().build_argv(["--quiet", "--tag", f"{NAME}:{tag}", *words, str(folder)])


def unchanged(runs: int) -> None:
    """TARGETS images that are what they should be: ours as a new process, each by `docker build` after the other."""
    inner = [sys.executable, __file__, "--targets", idle_base()]
    run(inner)
    secrets = [word for name in ("ca", "pip", "apt") for word in ("--secret", f"id={name},src=/dev/null")]
    words = ["--build-arg", f"BASE={NAME}:idle", *secrets]
    folders = [ROOT / ".build" / "images" / f"bench-{number}" for number in range(TARGETS)]
    argvs = [plain(folder, folder.name, *words) for folder in folders]

    def serial() -> None:
        for argv in argvs:
            run(argv, choose().environment)

    serial()
    told(f"{TARGETS} unchanged images", turns({"ours": partial(run, inner), "docker build, serial": serial}, runs))


def targets(base_reference: str) -> None:
    """Build TARGETS renamed copies of verl.cpu where they are not what they should be."""
    import tasks  # what `invoke build` loads, too

    specs = [replace(CPU, variant=f"bench-{number}", base=base_reference, base_made="") for number in range(TARGETS)]
    outcomes = tasks.batch.build_all(specs, Site.here(), Catalog.read(), progress="quiet")
    print(schedule.summary(outcomes))


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
        spec, of = source.chosen(CPU, str(verl), False, lambda _: {})

        def edited() -> None:
            for each in (verl / "verl", hand / "verl/verl", theirs / "verl/verl"):
                with (each / "__init__.py").open("a") as file:
                    file.write(f"# {time.time_ns()}\n")

        def ours() -> None:
            build.build(spec, Site.here(), [f"{NAME}:call"], from_base=idle, verl=of, progress=Progress())

        command = [sys.executable, "-m", "invoke", "build", "--platform=cpu", f"--verl={verl}", f"--base={idle}"]
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
        files = [path for path in verl.rglob("*") if path.is_file()]
        told(f"a one-line edit of verl, of {len(files)} files", turns(sides, runs, edited))
        print(f"  the report of an edit is {spent.share():.1%} of it: {1000 * spent.reporting_s():.0f} ms")
        print(f"  verl's layer as gzip, which is what a push of the edit sends: {_packed(verl / 'verl') / 1e6:.2f} MB")


class Spent:
    """What of builds their reports take, after the image is there; what the engine's time is used for costs none."""

    def __init__(self) -> None:
        self.reports: list[float] = []
        self.wholes: list[float] = []
        for module, name in ((report, "make"), (report_files, "write"), (report_text, "summary")):
            setattr(module, name, partial(self._timed, getattr(module, name)))

    def over(self, build_: Callable[[], None]) -> None:
        self.reports.append(0.0)
        begun = time.monotonic()
        build_()
        self.wholes.append(time.monotonic() - begun)

    def share(self) -> float:
        return statistics.median(part / whole for part, whole in zip(self.reports, self.wholes))

    def reporting_s(self) -> float:
        return statistics.median(self.reports)

    def _timed(self, call: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        begun = time.monotonic()
        try:
            return call(*arguments, **more)
        finally:
            self.reports[-1] += time.monotonic() - begun


def _packed(folder: Path) -> int:
    packed = io.BytesIO()
    with tarfile.open(fileobj=gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6), mode="w|") as archive:
        archive.add(folder, ".")
    return len(packed.getvalue())


def together(runs: int) -> None:
    """Builds at once against what they must take: the longest alone, or all CPU seconds over the cores."""
    at_once("work, two at a time", "i=0; while [ $i -lt {n}000000 ]; do i=$((i+1)); done", schedule.JOBS, runs)
    at_once("waiting, all at a time", "sleep {n}", len(LENGTHS), runs)


def at_once(what: str, step: str, jobs: int, runs: int) -> None:
    """One of the builds is as long as LENGTHS says, and stands last; each is measured alone before."""
    engine, debian = choose(), base.ensure()
    ratios, wall, least = [], [], []
    with tempfile.TemporaryDirectory() as place:

        def one(number: int) -> str:
            folder = Path(place, str(number))
            folder.mkdir(exist_ok=True)
            text = f"FROM {debian}\nRUN {step.format(n=LENGTHS[number])}; echo {time.time_ns()}\n"
            (folder / "Dockerfile").write_text(text)
            Running().watch(plain(folder, f"together-{number}"), engine.environment, lambda _: None)
            return ""

        for _ in range(runs):
            alone, busy_s = [], _busy_s()
            for number in range(len(LENGTHS)):
                begun = time.monotonic()
                one(number)
                alone.append(time.monotonic() - begun)
            bound = max([*alone, (_busy_s() - busy_s) / (os.cpu_count() or 1)])
            targets = [schedule.Target(str(each), partial(one, each), {}, alone[each]) for each in range(len(LENGTHS))]
            begun = time.monotonic()
            schedule.run(targets, jobs)
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


def reported(runs: int) -> None:
    """What the report of verl.cpu takes, its layers looked at for the first time and again."""
    image, known = daemon().images.get("verl.cpu:latest"), Path(tempfile.mkdtemp())
    below = daemon().images.get(image.labels["verljob.base.id"])
    text = (ROOT / "dockerfiles/rendered/cpu.Dockerfile").read_text()
    facts: dict[str, Any] = {"engine": "", "ended": "", "seconds": 0, "dockerfile": text, "inputs": {}}

    def make() -> None:
        last = report_files.read("bench", known)
        made = report.make("bench", image, below, BuildLog(), last=last, base_history=below.history(), **facts)
        report_files.write(made, known)

    def first() -> None:
        shutil.rmtree(places.KNOWN, ignore_errors=True)
        make()

    told("the report of verl.cpu", turns({"every layer new": first, "no layer new": make}, runs))
    shutil.rmtree(known)


MEASURED = ("unchanged", "edit", "together", "report")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=MEASURED, default=MEASURED)
    parser.add_argument("--checkout", type=Path, metavar="VERL", help="for edit: a checkout of verl's repository")
    parser.add_argument("--targets", metavar="BASE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ["VERLJOB_DOCKER"] = choose().client
    if given.targets:
        targets(given.targets)
        return
    of_a_source = partial(edit, checkout=given.checkout)
    measures = dict(zip(MEASURED, (unchanged, of_a_source, together, reported)))
    for name in given.only:
        measures[name](given.runs)
    for image in daemon().images.list(NAME):
        for tag in image.tags:
            daemon().images.remove(tag)


if __name__ == "__main__":
    main()
