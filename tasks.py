"""Invoke tasks: each parses its flags, calls one function and prints."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from invoke import Collection, Context, Exit, task

from images import base as images_base
from images import engine as images_engine
from images.errors import ImageError
from slurm import demo as slurm_demo
from slurm import testbed
from slurm.errors import SlurmError

ROOT = Path(__file__).parent
SUITES = ["lint", "unit", "shell", "image", "cluster"]

# A task that is asked to end takes down what it started. Set here since a shell starts background tasks deaf to INT.
for asked_to_end in (signal.SIGINT, signal.SIGTERM):
    signal.signal(asked_to_end, signal.default_int_handler)


@contextmanager
def reported() -> Iterator[None]:
    """Turn what went wrong into one message and exit code 1: the only place on the host that does."""
    try:
        yield
    except (ImageError, SlurmError) as error:
        raise Exit(f"{type(error).__name__}: {error}", code=1) from error


def say(line: str) -> None:
    """Print a line at once, also into a pipe."""
    print(line, flush=True)


def _debian() -> str:
    """Return a Debian 12 for the rehearsal cluster's containers, and make one docker client the choice of all parts."""
    os.environ["VERLJOB_DOCKER"] = images_engine.choose().client
    return images_base.ensure()


@task
def demo(_: Context) -> None:
    """Build verl.cpu and train with it on a two-node rehearsal cluster, through sbatch."""
    with reported():
        code = slurm_demo.run("verl.cpu:latest", _debian(), ROOT / ".build" / "demo", say=say)
    raise Exit(code=code)


@task
def lint(_: Context) -> None:
    """Run ruff, mypy --strict, shellcheck and hadolint."""
    _pytest(["lint"])


@task(name="test", help={"only": "suites, by comma: lint, unit, shell, image, cluster"})
def run_tests(_: Context, only: str = ",".join(SUITES)) -> None:
    """Run the linters and every test, the cluster's own last."""
    _pytest(only.split(","))


def _pytest(suites: list[str]) -> None:
    """Become pytest: no process is left between it and a signal, and its exit code is ours."""
    os.chdir(ROOT)
    folders = [f"tests/{suite}" for suite in suites]
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *folders])  # noqa: S606


@task(help={"nodes": f"compute nodes, 1 to {testbed.MAX_NODES}"})
def cluster_up(_: Context, nodes: int = 2) -> None:
    """Start a rehearsal cluster: a login node, a registry and compute nodes with engines of their own."""
    with reported():
        cluster = testbed.Cluster(nodes)
        cluster.up(_debian())
    say(f"The rehearsal cluster {cluster.name!r} takes jobs on {', '.join(cluster.nodes)}.")


@task
def cluster_sbatch(_: Context) -> None:
    """Submit as submitter, from a copy of this checkout: testbed.sbatch -- --nodes=2 slurm/launch.sh demo_cpu"""
    # Invoke joins what stands after -- with blanks (Context.remainder); words with blanks of their own are kept here.
    words = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    with reported():
        cluster = testbed.Cluster.running()
        cluster.sync_checkout()
        say(str(cluster.sbatch(words, environment=testbed.handed_on(os.environ))))


@task(help={"host": "login or a node", "user": "submitter, neighbour or root"})
def cluster_shell(_: Context, host: str = "login", user: str = "submitter") -> None:
    """Open a shell on a host of the rehearsal cluster."""
    with reported():
        argv = testbed.Cluster.running().shell(host, user)
    os.execvp(argv[0], argv)  # noqa: S606


@task(help={"image": "an image of this machine"})
def cluster_push(_: Context, image: str = "verl.cpu:latest") -> None:
    """Push an image to the rehearsal cluster's registry and print the name by which its nodes pull it."""
    with reported():
        say(testbed.Cluster.running().push(image))


@task
def cluster_down(_: Context) -> None:
    """Remove the rehearsal cluster; its images and what was pushed stay, so that the next one starts quickly."""
    with reported():
        testbed.Cluster(testbed.MAX_NODES).down()


_testbed = Collection("testbed")
for _verb, _task in {
    "up": cluster_up,
    "sbatch": cluster_sbatch,
    "shell": cluster_shell,
    "push": cluster_push,
    "down": cluster_down,
}.items():
    _testbed.add_task(_task, name=_verb)

namespace = Collection(demo, lint, run_tests, _testbed)
