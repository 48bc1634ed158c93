"""The machine of crowd.py as a container."""

from __future__ import annotations

from pathlib import Path

import docker
import yaml

from slurm.testbed import compose
from slurm.testbed.hosts import Host

IMAGE = "verljob-bench-host"
FOLDER = Path(__file__).parent / "host"


class Container(Host):
    """A container of bench/launch/host, which starts a cluster of ``nodes`` nodes."""

    def __init__(self, nodes: int, base: str) -> None:
        """Build the image on the one of the rehearsal cluster's login node, and start it."""
        engine = docker.from_env(timeout=compose.CLIENT_TIMEOUT_S)
        compose.build_images(base)
        build = [compose.docker_command(), "build", "--quiet", "--tag", IMAGE, str(FOLDER)]
        compose.run(build, {"DOCKER_BUILDKIT": "1"})
        container = engine.containers.run(
            IMAGE,
            [str(nodes)],
            detach=True,
            hostname="login",
            cap_add=yaml.safe_load(compose.COMPOSE_FILE.read_text())["x-node"]["cap_add"],
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            shm_size="2g",
        )
        super().__init__("login", container, engine.api)

    def daemon_log(self) -> str:
        """Return the last lines of the cluster's daemons."""
        return str(self.container.logs(tail=30).decode())

    def cpu_s(self) -> float:
        """Return the CPU seconds of all processes in the container."""
        stats = self._api.stats(self.container.id, stream=False, one_shot=True)
        return float(stats["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9

    def down(self) -> None:
        """Remove the container."""
        self.container.remove(force=True, v=True)
