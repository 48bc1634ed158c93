"""Docker Compose for the rehearsal cluster: builds its images, starts its containers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from slurm.errors import CommandFailed, EngineMissing, SlurmError

FOLDER = Path(__file__).parent
COMPOSE_FILE = FOLDER / "compose.yaml"
DEBIANS = ("bookworm", "trixie", "sid")
"""Releases of Debian: with Slurm 22.05, 24.11 and 26.05, Docker 20.10, 26 and 28, podman 4.3, 5.4 and 5.8."""
SOURCES = "enroot.tar.xz"
REGISTRY_VOLUME = "verljob-registry"
CLIENT_TIMEOUT_S = 600
MEMINFO = Path("/proc/meminfo")
STORE_GIB = 5
TRAINING_GIB = 10
KINDS = ("login", "node", "registry")
PRUNE_RUNS = "a prune operation is already running"
"""Docker's refusal (seen with 20.10)."""
_POLL_S = 0.25


def debian() -> str:
    """Return the cluster's release of Debian: ``VERLJOB_TESTBED_DEBIAN``, else bookworm. Raises SlurmError."""
    name = os.environ.get("VERLJOB_TESTBED_DEBIAN") or DEBIANS[0]
    if name not in DEBIANS:
        raise SlurmError(f"There is no rehearsal cluster of Debian {name!r}; there are: {', '.join(DEBIANS)}.")
    return name


def images(release: str | None = None) -> str:
    """Return the beginning of the images' names, of this release of Debian or of the cluster's."""
    release = release or debian()
    return "verljob-testbed" if release == DEBIANS[0] else f"verljob-testbed-{release}"


def docker_command() -> str:
    """Return the docker client to use: ``VERLJOB_DOCKER``, which ``run`` sets, else the first on PATH."""
    return os.environ.get("VERLJOB_DOCKER") or "docker"


def compose_command() -> list[str]:
    """Return the command that starts Compose: ``docker compose`` if the plugin exists, else ``docker-compose`` 1.29."""
    docker = docker_command()
    plugin = [docker, "compose"]
    if shutil.which(docker) and not subprocess.run([*plugin, "version"], check=False, capture_output=True).returncode:
        return plugin
    standalone = shutil.which("docker-compose")
    if standalone:
        return [standalone]
    raise EngineMissing(
        "Neither `docker compose` nor `docker-compose` was found. Use ./run, which installs it, or install Docker's "
        "docker-compose-plugin or Debian's docker-compose."
    )


def environment(nodes: int) -> dict[str, str]:
    """Return the variables of compose.yaml for ``nodes`` compute nodes, and a timeout.

    docker-compose 1.29 waits 60 s for an answer by default. Removing a node deletes the images that it pulled: on a
    busy disk that took longer, and the rest of the cluster was not removed.
    """
    return {
        "VERLJOB_TESTBED_NODES": str(nodes),
        "VERLJOB_TESTBED_STORE_GIB": str(store_gib(nodes, available_gib())),
        "VERLJOB_TESTBED_IMAGES": images(),
        "COMPOSE_HTTP_TIMEOUT": str(CLIENT_TIMEOUT_S),
    }


def available_gib() -> float:
    """Return the available memory of this machine in GiB, from /proc/meminfo; 0 if that is unknown."""
    available = re.search(r"^MemAvailable: +(\d+) kB$", MEMINFO.read_text() if MEMINFO.exists() else "", re.MULTILINE)
    return int(available[1]) / 2**20 if available else 0.0


def store_gib(nodes: int, available: float) -> int:
    """Return the GiB of memory in which each node's engine keeps its images, or 0 for a volume on disk.

    A node gets STORE_GIB or nothing: verl.cpu needs half of that, unpacked and while it is pulled. TRAINING_GIB is for
    the demo's training, which took 5 GiB over both nodes, and for the machine.
    """
    return STORE_GIB if available >= nodes * STORE_GIB + TRAINING_GIB else 0


def services(nodes: int) -> list[str]:
    """Return the services of a cluster of ``nodes`` compute nodes."""
    return ["login", "registry", *(f"n{index}" for index in range(1, nodes + 1))]


def up_arguments(nodes: int) -> list[str]:
    """Return the arguments of Compose that start ``nodes`` compute nodes, the login node and the registry."""
    return ["up", "--detach", *services(nodes)]


def down_arguments() -> list[str]:
    """Return the arguments of Compose that kill and remove everything but the registry's volume."""
    return ["down", "--volumes", "--remove-orphans", "--timeout", "0"]


def compose(project: str, arguments: Sequence[str], *, nodes: int) -> str:
    """Run Compose for one project and return its output."""
    argv = [*compose_command(), "--file", str(COMPOSE_FILE), "--project-name", project, *arguments]
    return run(argv, environment(nodes))


def build_images(base: str) -> None:
    """Build the three kinds of container on ``base``, a reference of debian() that the engine has or can pull.

    With ``VERLJOB_SOURCES``, a folder with enroot.tar.xz, the nodes have enroot. Raises SlurmError if it has none.
    """
    with tempfile.TemporaryDirectory(prefix="verljob-testbed-") as temporary:
        context = _context(Path(temporary))
        for kind in KINDS:
            argv = [docker_command(), "build", "--quiet", "--target", kind, "--tag", f"{images()}-{kind}"]
            run([*argv, "--build-arg", f"BASE={base}", str(context)], {"DOCKER_BUILDKIT": "1"})
    _prune_images()


def _context(temporary: Path) -> Path:
    """Return the folder to build from: this one, or with sources a copy that has them too."""
    folder = os.environ.get("VERLJOB_SOURCES")
    if not folder:
        return FOLDER
    sources = Path(folder) / SOURCES
    if not sources.is_file():
        raise SlurmError(
            f"VERLJOB_SOURCES is {folder}, which has no {SOURCES}: pack NVIDIA's repository enroot "
            "as the folder enroot into it, or unset it for nodes without enroot."
        )
    context = temporary / FOLDER.name
    shutil.copytree(FOLDER, context, ignore=shutil.ignore_patterns("__pycache__"))
    (context / "sources").mkdir()
    shutil.copy(sources, context / "sources")
    return context


def _prune_images() -> None:
    """Remove images that lost their names to newer ones, unless a cluster still runs on them.

    The engine runs one prune at a time and refuses others: waits for another client's.
    """
    refusals: list[CommandFailed] = []

    def is_pruned() -> bool:
        try:
            run([docker_command(), "image", "prune", "--force", "--filter", "label=verljob.testbed"], {})
        except CommandFailed as failure:
            if PRUNE_RUNS not in failure.output:
                raise
            refusals.append(failure)
            return False
        return True

    if not wait_until(is_pruned, CLIENT_TIMEOUT_S):
        raise refusals[-1]


def make_volumes() -> None:
    """Create the registry's volume, which compose.yaml expects and no cluster removes."""
    run([docker_command(), "volume", "create", REGISTRY_VOLUME], {})


def remove_caches() -> None:
    """Remove the images of every release and the registry's volume, which make the next start quick."""
    run([docker_command(), "volume", "rm", "--force", REGISTRY_VOLUME], {})
    for release in DEBIANS:
        names = [f"{images(release)}-{kind}" for kind in KINDS]
        run([docker_command(), "image", "rm", "--force", *names], {})


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


def wait_until(is_done: Callable[[], bool], timeout_s: float) -> bool:
    """Poll ``is_done``; return False if it is still false after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not is_done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
