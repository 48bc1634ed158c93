"""Build times against other tools: unchanged images, a one-line edit of verl, several at once, the report.

    .venv/bin/python bench/images/builds.py [--runs 5] [--only unchanged edit together report] [--checkout VERL]

On the base of these builds /bin/sh does nothing and ends well: what is timed is the builder, not pip. Ours is the
rendered Dockerfile of verl.cpu, unchanged; verl is that of verl.cpu:latest, which must be here, or a whole checkout of
its repository, all of which the others copy. Sides take turns, and medians are printed with their ratio.
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

from bench.images.edits import edit
from bench.images.sides import CPU, NAME, ROOT, idle_base, plain, told, turns
from bench.images.targets import NAMES, TARGETS
from bench.images.together import together
from images.contents import layer_sizes
from images.context.context import BuildContext
from images.context.plan import BuildPlan
from images.engine.client import choose
from images.engine.daemon import daemon, get
from images.host.process import run
from images.report import report, store
from images.report.build_log import BuildLog


def unchanged(runs: int) -> None:
    """TARGETS images that are what they should be: ours as a new process, each by `docker build` after the other."""
    inner = [sys.executable, str(ROOT / "bench/images/targets.py"), idle_base()]
    run(inner)
    secrets = [word for name in ("ca", "pip", "apt") for word in ("--secret", f"id={name},src=/dev/null")]
    words = ["--build-arg", f"BASE={NAME}:idle", *secrets]
    folders = [ROOT / ".build" / "images" / name for name in NAMES]
    argvs = [plain(folder, folder.name, *words) for folder in folders]

    def serial() -> None:
        for argv in argvs:
            run(argv, choose().environment)

    serial()
    told(f"{TARGETS} unchanged images", turns({"ours": partial(run, inner), "docker build, serial": serial}, runs))


def reported(runs: int) -> None:
    """What the report of verl.cpu takes, its layers looked at for the first time and again."""
    image, known = get("verl.cpu:latest"), Path(tempfile.mkdtemp())
    below = get(image.attrs["Config"]["Labels"]["verljob.base.id"])
    text = (ROOT / "dockerfiles/rendered/cpu.Dockerfile").read_text()
    staged = BuildContext(Path(), text, {}, {})
    plan = BuildPlan(CPU, ["bench"], choose(), "", below, staged, {}, {})

    def make() -> None:
        last = store.read("bench", known)
        result = report.BuildResult(image, BuildLog(), 0)
        made = report.make(plan, result, last=last, base_history=below.history(), ended="")
        store.write(made, known)

    def first() -> None:
        shutil.rmtree(layer_sizes.LAYER_SIZES, ignore_errors=True)
        make()

    told("the report of verl.cpu", turns({"every layer new": first, "no layer new": make}, runs))
    shutil.rmtree(known)


MEASURED = ("unchanged", "edit", "together", "report")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=MEASURED, default=MEASURED)
    parser.add_argument("--checkout", type=Path, metavar="VERL", help="for edit: a checkout of verl's repository")
    given = parser.parse_args()
    os.environ["VERLJOB_DOCKER"] = choose().client
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a command is not compiled anew each time
    of_a_source = partial(edit, checkout=given.checkout)
    measures: dict[str, Callable[[int], None]] = dict(zip(MEASURED, (unchanged, of_a_source, together, reported)))
    for name in given.only:
        measures[name](given.runs)
    for image in daemon().images.list(NAME):
        for tag in image.tags:
            daemon().images.remove(tag)


if __name__ == "__main__":
    main()
