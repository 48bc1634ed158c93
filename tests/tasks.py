"""Tasks `dev.*` and `test`: linters, tests, faults, generated pages."""

from __future__ import annotations

import os
import subprocess
import sys

from invoke import Collection, Context, Exit, task

from images.builds.build import BuildRequest, build
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.host import paths
from images.tasks import testbed_base
from slurm.jobs import explain

STAGES = [
    (["lint", "unit", "shell"], ["--numprocesses=4", "--dist=loadfile"]),
    # In the order of the files' names: the first ones need verl.cpu, the others run while it is built.
    (["image"], ["--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder"]),
    (["cluster"], []),
]
SUITES = [suite for stage, _ in STAGES for suite in stage]
PYTEST = [sys.executable, "-m", "pytest"]


@task
def lint(_: Context) -> None:
    """Run ruff, mypy --strict, shellcheck and hadolint."""
    run_pytest(["lint"])


@task(name="test", help={"only": "suites, by comma: lint, unit, shell, image, cluster"})
def run_tests(_: Context, only: str = ",".join(SUITES)) -> None:
    """Run the linters and all tests, the cluster's last."""
    run_pytest(only.split(","))


@task(
    help={
        "only": "names of faults or outages (docs/faults.md), by comma; crowd: eight jobs at once",
        "runtime": "name of a file in slurm/runtimes/",
        "rounds": "number of times that each fault is made",
        "hours": "instead, make random outages while verl trains, for so long",
        "seed": "of the random outages",
    }
)
def chaos(
    _: Context, only: str = "", runtime: str = "docker", rounds: int = 1, hours: float = 0.0, seed: int = 0
) -> None:
    """Make every kind of fault on a rehearsal cluster, and print the matrix of their outcomes."""
    from tests.faults import chaos as faults
    from tests.faults import soak

    catalog = Catalog.read()
    variant = catalog.find(platform="cpu")
    tags = catalog.names(variant)
    build(BuildRequest(variant, tags), Site.read())
    image, base = tags[0], testbed_base()
    if hours:
        failed = soak.run(image, base, hours=hours, only=only, runtime=runtime, seed=seed, log_line=print_line)
    else:
        failed = faults.run(image, base, only=only, runtime=runtime, rounds=rounds, log_line=print_line)
    raise Exit(code=min(failed, 1))


@task(name="troubleshooting")
def write_troubleshooting(_: Context) -> None:
    """Write the rules' part of docs/troubleshooting.md after a rule was changed."""
    print(str(explain.write_page(paths.ROOT / "docs" / "troubleshooting.md")), flush=True)


def print_line(line: str) -> None:
    print(line, flush=True)


def run_pytest(suites: list[str]) -> None:
    """Run pytest over the suites in stages: in parallel by file, except for the cluster tests.

    The tests of the cluster have time limits. A stage starts if the one before passed. This process becomes the last
    stage, so that an interrupt reaches its fixtures once.
    """
    if unknown := set(suites) - set(SUITES):
        raise Exit(f"unknown suite {', '.join(sorted(unknown))}; known are {', '.join(SUITES)}", code=2)
    os.chdir(paths.ROOT)
    chosen = [([suite for suite in stage if suite in suites], flags) for stage, flags in STAGES]
    stages = [[*PYTEST, *flags, *(f"tests/{suite}" for suite in stage)] for stage, flags in chosen if stage]
    for argv in stages[:-1]:
        with subprocess.Popen(argv) as child:
            try:
                code = child.wait()
            except KeyboardInterrupt:  # pytest then tears down its fixtures
                child.terminate()
                raise
        if code:
            raise Exit(code=code)
    os.execv(sys.executable, stages[-1])  # noqa: S606


namespace = Collection(lint, chaos, write_troubleshooting)
