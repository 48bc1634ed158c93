"""Facts of this node that do not change while the supervisor runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verl_node import versions
from verl_node.checks.node.limits import shared_memory_bytes
from verl_node.gpu import platforms, usage, visible_devices
from verl_node.gpu.usage import Gpu
from verl_node.ray_node import fast_start
from verl_node.ray_node.flags import Share
from verl_node.reporting import node_dirs
from verl_node.settings.identity import Identity
from verl_node.settings.ports import DEBUGGERS, NodePorts
from verl_node.settings.settings import Settings
from verl_node.versions import Version

# Docker's default of 64 MiB is too small for an object store: below this Ray chooses its size and place itself.
_LEAST_SHARED_BYTES = 512 << 20
_OBJECT_STORE_PART = 0.3  # Ray's own share of the memory


@dataclass(frozen=True)
class NodeFacts:
    """Settings, identity and ports of this node."""

    settings: Settings
    identity: Identity
    ports: NodePorts

    @classmethod
    def gather(cls, settings: Settings) -> NodeFacts:
        """Count the GPUs if Slurm did not, read the versions, divide the port block. Raises BadSettings."""
        gpus = settings.allocation.gpus
        if gpus is None:
            offered = visible_devices.offered_gpus(settings.environ, platform=settings.platform)
            gpus = offered or platforms.find(settings.platform).declared_gpus
        debuggers = DEBUGGERS if settings.debug else 0
        ports = NodePorts.divide(*settings.port_block, settings.head_ports, debuggers=debuggers)
        return cls(settings, Identity.of_this_node(settings, gpus), ports)

    @property
    def host(self) -> str:
        """The node's name in Slurm."""
        return self.identity.host

    @property
    def gpus(self) -> int:
        """The number of GPUs of the job on this node."""
        return self.identity.gpus

    @property
    def ray(self) -> Version:
        """Ray's version. Raises ValueError if Ray is not installed."""
        return versions.parse(self.identity.ray)

    @property
    def delay_ray_helpers(self) -> bool:
        """Whether Ray's helpers start after the cluster has formed."""
        return fast_start.supported(self.ray)

    @property
    def folder(self) -> Path | None:
        """This node's folder in the run directory."""
        run_dir = self.settings.run_dir
        return node_dirs.folder(run_dir, self.identity.node_id, self.host) if run_dir else None

    def ray_share(self) -> Share:
        """Return the resources that this node gives to Ray."""
        memory, shared = self.settings.memory_bytes, shared_memory_bytes()
        store = None
        if memory is not None and shared >= _LEAST_SHARED_BYTES:
            store = int(min(memory * _OBJECT_STORE_PART, shared * 0.9))
        rest = None if memory is None or store is None else memory - store
        return Share(self.identity.cpus, self.gpus, rest, store)

    def gpu_usage(self) -> list[Gpu]:
        """Return the current usage of the job's GPUs on this node."""
        platform = self.settings.platform
        visible = visible_devices.visible_devices(platform)
        return usage.read_usage(
            platform, visible_devices.kept_mask(self.settings.environ, gpus=self.gpus, visible=visible)
        )
