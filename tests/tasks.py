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
    # In the order of the file names: the build of verl.cpu starts first, with tests beside it that do not need it.
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
        "only": "kinds of tests/faults/kinds.py, by comma; crowd: eight jobs at once",
        "runtime": "name of a file in slurm/runtimes/",
        "rounds": "number of times that each fault is injected",
    }
)
def chaos(_: Context, only: str = "", runtime: str = "docker", rounds: int = 1) -> None:
    """Inject every kind of fault on a separate rehearsal cluster, and print the matrix of results."""
    from tests.faults import chaos as faults

    catalog = Catalog.read()
    variant = catalog.find(platform="cpu")
    tags = catalog.names(variant)
    build(BuildRequest(variant, tags), Site.read())
    failed = faults.run(tags[0], testbed_base(), only=only, runtime=runtime, rounds=rounds, say=print)
    raise Exit(code=min(failed, 1))


@task(name="troubleshooting")
def write_troubleshooting(_: Context) -> None:
    """Write the rules' part of docs/troubleshooting.md after a rule was changed."""
    print(str(explain.write_page(paths.ROOT / "docs" / "troubleshooting.md")), flush=True)


def run_pytest(suites: list[str]) -> None:
    """Run pytest over the suites in stages; the files of a stage run in parallel.

    The cluster's tests have time limits and run alone. A stage starts if the one before passed. The last one replaces
    this process, so that an interrupt reaches its fixtures only once.
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
            except KeyboardInterrupt:  # pytest then stops what its fixtures started
                child.terminate()
                raise
        if code:
            raise Exit(code=code)
    os.execv(sys.executable, stages[-1])  # noqa: S606


namespace = Collection(lint, chaos, write_troubleshooting)
