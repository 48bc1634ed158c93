"""Ports of Ray's services, from the node's port block."""

from __future__ import annotations

from dataclasses import dataclass, replace

from verl_node.errors import BadSettings

DEBUGGERS = 16
"""Processes of a node that may wait in a debugger at once: one per GPU, and some of the agent loop."""

SMALLEST_BLOCK = 64  # 11 services and at least about 50 worker processes


@dataclass(frozen=True)
class HeadPorts:
    """The ports of the head that all nodes know."""

    control: int
    gcs: int
    dashboard: int

    @classmethod
    def parse(cls, text: str) -> HeadPorts:
        """Parse ``control,gcs,dashboard``. Raises BadSettings."""
        parts = text.split(",")
        if len(parts) != 3 or not all(_is_port(part) for part in parts) or len(set(parts)) != 3:
            raise BadSettings(
                f"VERLJOB_HEAD_PORTS is {text!r}, not three different ports `control,gcs,dashboard`.",
                fix="Unset it; under Slurm slurm/launch.sh chooses them.",
            )
        return cls(*map(int, parts))


@dataclass(frozen=True)
class NodePorts:
    """The services of a node in the order of the block; the rest of the block is for Ray's workers."""

    node_manager: int
    object_manager: int
    agent_http: int
    agent_grpc: int
    runtime_env_agent: int
    metrics_export: int
    autoscaler_metrics: int
    dashboard_metrics: int
    dashboard_grpc: int
    client_server: int
    master: int
    workers_first: int
    workers_last: int
    debuggers: tuple[int, int] | None = None

    @classmethod
    def divide(cls, first: int, last: int, head: HeadPorts, *, debuggers: int = 0) -> NodePorts:
        """Divide a block (inclusive), without head ports at its start. Raises BadSettings.

        The last ``debuggers`` ports are for debuggers.
        """
        taken = {head.control, head.gcs, head.dashboard}
        while first in taken:
            first += 1
        if last - first + 1 < SMALLEST_BLOCK or any(first <= port <= last for port in taken):
            raise BadSettings(
                f"The port block {first}-{last} is smaller than {SMALLEST_BLOCK} or contains one of the head's ports "
                f"{sorted(taken)} in its middle.",
                fix="Set VERLJOB_PORT_BLOCK=first-last to another range.",
            )
        services = 11
        workers_last = last - debuggers
        of_debuggers = (workers_last + 1, last) if debuggers else None
        return replace(cls(*[*range(first, first + services + 1), workers_last]), debuggers=of_debuggers)


def parse_block(text: str) -> tuple[int, int]:
    """Parse ``first-last``. Raises BadSettings."""
    first, _, last = text.partition("-")
    if not (_is_port(first) and _is_port(last) and int(first) < int(last)):
        raise BadSettings(
            f"VERLJOB_PORT_BLOCK is {text!r}, not first-last between 1024 and 65535.",
            fix="Unset it, or set it to a free range such as 20000-20511.",
        )
    return int(first), int(last)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1024 <= int(text) < 1 << 16
