"""Build times against other tools: unchanged images, a one-line edit of verl, several at once, the report.

    .venv/bin/python bench/images/builds.py [--runs 5] [--only unchanged edit together report] [--checkout VERL]

On the base of these builds /bin/sh is /bin/true, so that the builder is timed and not pip. Ours is the rendered
Dockerfile of verl.cpu, unchanged. verl is the package of verl.cpu:latest, which must exist, or a checkout of its
repository, which the other ways copy as a whole. Sides take turns; medians are printed with their ratio.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.images.edits import measure_edit
from bench.images.sides import CPU, NAME, ROOT, Sides, build_argv, build_idle_base, print_ratios, take_turns
from bench.images.targets import NAMES, TARGETS
from bench.images.together import measure_together
from images.contents import layer_sizes
from images.context.context import BuildContext
from images.context.plan import BuildPlan
from images.engine.client import choose
from images.engine.daemon import daemon, get
from images.host.process import run
from images.report import report, store
from images.report.build_log import BuildLog


def measure_unchanged(runs: int) -> None:
    """Compare TARGETS unchanged images: ours in one new process, against one `docker build` after the other."""
    inner = [sys.executable, str(ROOT / "bench/images/targets.py"), build_idle_base()]
    run(inner)
    secrets = [flag for name in ("ca", "pip", "apt") for flag in ("--secret", f"id={name},src=/dev/null")]
    flags = ["--build-arg", f"BASE={NAME}:idle", *secrets]
    folders = [ROOT / ".build" / "images" / name for name in NAMES]
    argvs = [build_argv(folder, folder.name, *flags) for folder in folders]

    def serial() -> None:
        for argv in argvs:
            run(argv, choose().environment)

    serial()
    sides: Sides = {"ours": partial(run, inner), "docker build, serial": serial}
    print_ratios(f"{TARGETS} unchanged images", take_turns(sides, runs))


def measure_report(runs: int) -> None:
    """Measure the report of verl.cpu, with no layer measured before and with all of them."""
    image, folder = get("verl.cpu:latest"), Path(tempfile.mkdtemp())
    below = get(image.attrs["Config"]["Labels"]["verljob.base.id"])
    text = (ROOT / "dockerfiles/rendered/cpu.Dockerfile").read_text()
    staged = BuildContext(Path(), text, {}, {})
    plan = BuildPlan(CPU, ["bench"], choose(), "", below, staged, {}, {})

    def make() -> None:
        last = store.read("bench", folder)
        result = report.BuildResult(image, BuildLog(), 0)
        made = report.make(plan, result, last=last, base_history=below.history(), ended="")
        store.write(made, folder)

    def first() -> None:
        shutil.rmtree(layer_sizes.LAYER_SIZES, ignore_errors=True)
        make()

    print_ratios("the report of verl.cpu", take_turns({"every layer new": first, "no layer new": make}, runs))
    shutil.rmtree(folder)


MEASURED = ("unchanged", "edit", "together", "report")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=MEASURED, default=MEASURED)
    parser.add_argument("--checkout", type=Path, metavar="VERL", help="for edit: a checkout of verl's repository")
    options = parser.parse_args()
    os.environ["VERLJOB_DOCKER"] = choose().client
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every command compiles its modules again
    measure: dict[str, Callable[[int], None]] = {
        "unchanged": measure_unchanged,
        "edit": partial(measure_edit, checkout=options.checkout),
        "together": measure_together,
        "report": measure_report,
    }
    for name in options.only:
        measure[name](options.runs)
    for image in daemon().images.list(NAME):
        for tag in image.tags:
            daemon().images.remove(tag)


if __name__ == "__main__":
    main()
