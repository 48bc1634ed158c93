"""Facts of a node that the cluster checks compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl_node.checks.node import gpus as of_gpus
from verl_node.checks.node import rdma
from verl_node.gpu import platforms
from verl_node.gpu.status import NoAnswer
from verl_node.network import rails
from verl_node.settings.settings import Settings

LIMIT_S = of_gpus.TIMEOUT_S
MEMINFO = Path("/proc/meminfo")

Facts = dict[str, Any]
"""``memory`` (bytes for the job), ``rails`` (chosen ports); with GPUs ``driver`` and ``models``, ``gpu_total`` and
``gpu_free`` (bytes of the one that has least)."""


def gather(settings: Settings, gpus: int) -> Facts:
    """Return them; what a driver does not answer is left out, since a check tells of it."""
    chosen = rails.choose(rdma.here()).ports
    facts: Facts = {"memory": _memory(settings), "rails": [port.name for port in chosen]}
    if gpus and platforms.find(settings.platform).devices:
        try:
            found = of_gpus.look(settings, gpus)
        except NoAnswer:
            found = []
        if found:
            facts.update(
                driver=found[0].driver,
                models=sorted({gpu.model for gpu in found}),
                gpu_total=min(gpu.total for gpu in found),
                gpu_free=min(gpu.total - gpu.used for gpu in found),
            )
    return facts


def _memory(settings: Settings) -> int:
    """The less of what the job was given and of what the node has left."""
    lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines() if ":" in line)
    available = int(lines["MemAvailable"].split()[0]) << 10
    return min(available, settings.memory_bytes or available)
