"""Docker Compose for the rehearsal cluster: builds its images, starts its containers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm.errors import CommandFailed, EngineMissing
from slurm.testbed.waiting import wait_until

FOLDER = Path(__file__).parent
COMPOSE_FILE = FOLDER / "compose.yaml"
IMAGES = "verljob-testbed"
REGISTRY_VOLUME = "verljob-registry"
PATIENCE_S = 600
MEMINFO = Path("/proc/meminfo")
STORE_GIB = 5
TRAINING_GIB = 10
KINDS = ("login", "node", "registry")
ANOTHER_PRUNES = "a prune operation is already running"
"""Docker's refusal (seen with 20.10)."""


def docker_command() -> str:
    """Return the docker client to use: ``VERLJOB_DOCKER``, which ``run`` sets, else the first on PATH."""
    return os.environ.get("VERLJOB_DOCKER") or "docker"


def compose_command() -> list[str]:
    """Return the words that start Compose: ``docker compose`` where the plugin is, else ``docker-compose`` 1.29."""
    docker = docker_command()
    plugin = [docker, "compose"]
    if shutil.which(docker) and not subprocess.run([*plugin, "version"], check=False, capture_output=True).returncode:
        return plugin
    standalone = shutil.which("docker-compose")
    if standalone:
        return [standalone]
    raise EngineMissing(
        "Compose is needed, and neither `docker compose` nor `docker-compose` is here. "
        "Use ./run, which installs it, or install Docker's docker-compose-plugin or Debian's docker-compose."
    )


def environment(nodes: int) -> dict[str, str]:
    """Return what compose.yaml reads from the environment for a cluster of ``nodes`` compute nodes, and a patience.

    docker-compose 1.29 gives up on an answer after 60 s. Removing a node means deleting the images that it pulled:
    on a busy disk that took longer, and then the rest of the cluster stayed.
    """
    return {
        "VERLJOB_TESTBED_NODES": str(nodes),
        "VERLJOB_TESTBED_STORE_GIB": str(store_gib(nodes, available_gib())),
        "VERLJOB_TESTBED_IMAGES": IMAGES,
        "COMPOSE_HTTP_TIMEOUT": str(PATIENCE_S),
    }


def available_gib() -> float:
    """Return the memory in GiB that this machine can still give, as Linux tells it; 0 where it does not."""
    told = re.search(r"^MemAvailable: +(\d+) kB$", MEMINFO.read_text() if MEMINFO.exists() else "", re.MULTILINE)
    return int(told[1]) / 2**20 if told else 0.0


def store_gib(nodes: int, available: float) -> int:
    """Return the GiB of memory in which each node's engine keeps its images, or 0 for a volume on disk.

    A node gets STORE_GIB or nothing: half of that holds verl.cpu unpacked and while it is pulled. TRAINING_GIB is for
    the demo's training, which took 5 GiB over both nodes, and for the machine.
    """
    return STORE_GIB if available >= nodes * STORE_GIB + TRAINING_GIB else 0


def services(nodes: int) -> list[str]:
    """Return the services of a cluster of ``nodes`` compute nodes."""
    return ["login", "registry", *(f"n{index}" for index in range(1, nodes + 1))]


def up_words(nodes: int) -> list[str]:
    """Return the words after the project that start ``nodes`` compute nodes and what they need."""
    return ["up", "--detach", *services(nodes)]


def down_words() -> list[str]:
    """Return the words that remove everything but the registry's volume, at once: nothing in it is worth a farewell."""
    return ["down", "--volumes", "--remove-orphans", "--timeout", "0"]


def compose(project: str, words: Sequence[str], *, nodes: int) -> str:
    """Run Compose for one project and return what it said."""
    argv = [*compose_command(), "--file", str(COMPOSE_FILE), "--project-name", project, *words]
    return run(argv, environment(nodes))


def build_images(base: str) -> None:
    """Build the three kinds of container on ``base``, a reference of a Debian 12 that the engine has or can pull."""
    for kind in KINDS:
        argv = [docker_command(), "build", "--quiet", "--target", kind, "--tag", f"{IMAGES}-{kind}"]
        run([*argv, "--build-arg", f"BASE={base}", str(FOLDER)], {"DOCKER_BUILDKIT": "1"})
    _remove_nameless()


def _remove_nameless() -> None:
    """Remove the images that newer ones took the names from, unless a cluster still runs on them.

    The engine does so for one client at a time, and refuses the others.
    """
    refusals: list[CommandFailed] = []

    def pruned() -> bool:
        try:
            run([docker_command(), "image", "prune", "--force", "--filter", "label=verljob.testbed"], {})
        except CommandFailed as failure:
            if ANOTHER_PRUNES not in failure.output:
                raise
            refusals.append(failure)
            return False
        return True

    if not wait_until(pruned, PATIENCE_S):
        raise refusals[-1]


def make_volumes() -> None:
    """Make what compose.yaml takes for granted: the registry's volume, which no cluster removes."""
    run([docker_command(), "volume", "create", REGISTRY_VOLUME], {})


def remove_caches() -> None:
    """Remove what makes the next cluster start quickly: the images and what was pushed."""
    run([docker_command(), "volume", "rm", "--force", REGISTRY_VOLUME], {})
    for kind in KINDS:
        run([docker_command(), "image", "rm", "--force", f"{IMAGES}-{kind}"], {})


def run(argv: Sequence[str], extra: Mapping[str, str]) -> str:
    """Run ``argv`` with ``extra`` in its environment and return its output; raises CommandFailed."""
    done = subprocess.run(
        argv,
        check=False,
        env={**os.environ, **extra},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode:
        raise CommandFailed(argv, done.returncode, done.stdout)
    return done.stdout
