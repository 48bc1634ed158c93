"""Tasks `dev.*` and `test`: linters, tests, faults, generated pages."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from tempfile import TemporaryFile

from invoke import Collection, Context, Exit, task

from images.builds.build import BuildRequest, build
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.host import paths
from images.tasks import testbed_base
from slurm import testbed

# Suites of one pytest run, and its flags. The first two runs share the machine: image tests need the cores, the others
# mostly wait. In the order of file names verl.cpu is built first, beside tests that do not need it.
RUNS = [
    (["lint", "unit", "shell"], ["--numprocesses=4", "--dist=loadfile"]),
    (["image"], ["--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder"]),
    (["cluster"], []),
]
SUITES = [suite for suites, _ in RUNS for suite in suites]
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
    image, base = tags[0], testbed_base(testbed.debian())
    if hours:
        failed = soak.run(image, base, hours=hours, only=only, runtime=runtime, seed=seed, log_line=print_line)
    else:
        failed = faults.run(image, base, only=only, runtime=runtime, rounds=rounds, log_line=print_line)
    raise Exit(code=min(failed, 1))


@task(name="pages")
def write_pages(_: Context) -> None:
    """Write the generated parts of docs/checks.md, faults.md, profiles.md and troubleshooting.md."""
    environment = {**os.environ, "PYTHONPATH": str(paths.ENTRYPOINTS)}
    done = subprocess.run([sys.executable, "-m", "tests.pages"], cwd=paths.ROOT, env=environment, check=False)
    raise Exit(code=done.returncode)


def print_line(line: str) -> None:
    print(line, flush=True)


def run_pytest(suites: list[str]) -> None:
    """Run pytest over the suites: the cluster's last and by itself, since its tests have time limits.

    The other runs go side by side; the output of the second is printed when both have ended. The cluster tests start if
    all others passed. This process becomes the last run, so that an interrupt reaches its fixtures once.
    """
    if unknown := set(suites) - set(SUITES):
        raise Exit(f"unknown suite {', '.join(sorted(unknown))}; known are {', '.join(SUITES)}", code=2)
    os.chdir(paths.ROOT)
    chosen = [([suite for suite in run if suite in suites], flags) for run, flags in RUNS]
    runs = [[*PYTEST, *flags, *(f"tests/{suite}" for suite in run)] for run, flags in chosen if run]
    cluster = runs.pop() if "cluster" in suites else None
    code = run_side_by_side(runs) if runs else 0
    if code or cluster is None:
        raise Exit(code=code)
    os.execv(sys.executable, cluster)  # noqa: S606


def run_side_by_side(runs: list[list[str]]) -> int:
    """Run the first command with this terminal and the others with a file; return the first exit code that is not 0."""
    with ExitStack() as stack:
        logs = [stack.enter_context(TemporaryFile()) for _ in runs[1:]]
        others = [subprocess.Popen(argv, stdout=log, stderr=log) for argv, log in zip(runs[1:], logs)]
        children = [subprocess.Popen(runs[0]), *others]
        try:
            codes = [child.wait() for child in children]
        except KeyboardInterrupt:  # pytest then tears down its fixtures
            for child in children:
                child.terminate()
            for child in children:
                child.wait()
            raise
        for log in logs:
            log.seek(0)
            print_line(log.read().decode(errors="replace"))
    return next(filter(None, codes), 0)


namespace = Collection(lint, chaos, write_pages)
