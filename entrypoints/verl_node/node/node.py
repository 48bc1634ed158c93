"""State that head and worker share: settings, journal, checks, GPUs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from verl_node.checks.background import NodeChecks
from verl_node.checks.node.limits import shared_memory_bytes
from verl_node.errors import NodeError
from verl_node.gpu import platforms, usage, visible_devices
from verl_node.gpu.usage import Gpu
from verl_node.network import fabric
from verl_node.ray_node import environment, flags
from verl_node.ray_node.flags import Share
from verl_node.reporting import node_dirs
from verl_node.reporting.events import Journal, to_file
from verl_node.reporting.verdict import Verdict, write_by_rename
from verl_node.settings.identity import Identity
from verl_node.settings.ports import DEBUGGERS, NodePorts
from verl_node.settings.settings import Settings

# Docker's own default of 64 MiB and the like are no place for an object store: then Ray chooses one itself.
_LEAST_SHARED = 512 << 20
_OBJECT_STORE_PART = 0.3  # Ray's own share of the memory


class Node:
    """The node that this process runs, as both stories (head.py, worker.py) need it."""

    def __init__(self, settings: Settings) -> None:
        given = settings.allocation.gpus
        self.settings = settings
        self.host = settings.allocation.host
        self.gpus = self._offered_gpus() if given is None else given
        self.ports = NodePorts.deal(
            *settings.port_block, settings.head_ports, debuggers=DEBUGGERS if settings.debug else 0
        )
        self.journal = Journal(self.host)
        for phase, seconds in settings.host_phases.items():
            self.journal.relay(phase, "end", "", seconds)
        self.identity = Identity.of_this_node(settings, self.gpus)
        self._refusal: NodeError | None = None
        self.farewell: Callable[[Verdict], Awaitable[None]] | None = None

    def begin_checks(self) -> None:
        """Start the checks of this node, before there are threads or an event loop.

        What keeps them from starting is raised when somebody can hear it, by `require_checks`.
        """
        try:
            self.ray_version = flags.supported(self.identity.ray)
            self.checking = NodeChecks(self.settings, self.gpus, self.journal)
        except NodeError as error:
            self._refusal = error

    def require_checks(self) -> None:
        """Raise what kept the checks from starting: BadSettings or CheckFailed."""
        if self._refusal is not None:
            raise self._refusal

    async def watch_checks(self) -> None:
        """Wait until this node is checked. Raises CheckFailed or PermissionMissing."""
        await self.checking.watch(lambda: self.farewell is not None)

    def share(self) -> Share:
        """Return what this node gives to Ray."""
        memory, shared = self.settings.memory_bytes, shared_memory_bytes()
        store = None
        if memory is not None and shared >= _LEAST_SHARED:
            store = int(min(memory * _OBJECT_STORE_PART, shared * 0.9))
        rest = None if memory is None or store is None else memory - store
        return Share(self.settings.allocation.cpus, self.gpus, rest, store)

    def ray_environment(self, gcs: str, training: dict[str, str], address: str = "") -> dict[str, str]:
        """Return the environment of Ray, of the driver and of the training on this node. Raises BadSettings.

        What the fabric wants is known with the ``address`` by which the nodes have met.
        """
        return environment.build(
            self.settings.environ,
            gcs=gcs,
            ports=self.ports,
            platform=self.settings.platform,
            gpus=self.gpus,
            ray=self.ray_version,
            start_timeout_s=self.settings.ray_timeout_s,
            silence_s=self.settings.silence_s,
            token_file=self.settings.token_file,
            verl_checkout=self.settings.verl_checkout,
            debug=self.settings.debug,
            training=training,
            fabric=self._fabric(address) if address else {},
        )

    def _fabric(self, address: str) -> dict[str, str]:
        environ = self.settings.environ
        found = fabric.discover_on_this_node(address, environ)
        variables = found.variables(environ)
        told = ", ".join(f"{name} {value}" for name, value in variables.items()) or "nothing to set"
        self.journal.note("; ".join([f"fabric: {told}", *found.notes]))
        for line in found.lines(environ) if self.settings.doctor else ():
            self.journal.note(line)
        return variables

    def gpu_use(self) -> list[Gpu]:
        """Return what the job's GPUs on this node do now."""
        platform = self.settings.platform
        visible = visible_devices.visible_devices(platform)
        return usage.read_usage(
            platform, visible_devices.kept_mask(self.settings.environ, gpus=self.gpus, visible=visible)
        )

    def folder(self) -> Path | None:
        """Return this node's folder in the run directory."""
        run_dir = self.settings.run_dir
        return node_dirs.folder(run_dir, self.settings.allocation.node_id, self.host) if run_dir else None

    def keep_events(self) -> None:
        """Write every event, of all nodes, to the run directory from now on (on the head)."""
        if self.settings.run_dir is not None:
            self.journal.hand_over_to(to_file(self.settings.run_dir / "events.jsonl"))

    def keep_config(self, nodes: Sequence[Identity]) -> None:
        """Write config.json: what was launched, and on what (on the head)."""
        if self.settings.run_dir is not None:
            config = {
                "recipe": self.settings.recipe,
                "overrides": list(self.settings.overrides),
                "platform": self.settings.platform,
                "image": self.settings.image,
                "image_digest": self.settings.image_digest,
                "verl": self.identity.verl,
                "verl_commit": self.identity.verl_commit,
                "attempt": self.settings.attempt,
                "nodes": [node.message() for node in nodes],
            }
            write_by_rename(self.settings.run_dir / "config.json", json.dumps(config, indent=2) + "\n")

    def _offered_gpus(self) -> int:
        platform = self.settings.platform
        return (
            visible_devices.offered_gpus(self.settings.environ, platform=platform)
            or platforms.find(platform).declared_gpus
        )
