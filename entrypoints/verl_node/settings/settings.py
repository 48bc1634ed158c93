"""Settings of a node from the environment, which no other module of the supervisor reads."""

from __future__ import annotations

import netrc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from verl_node.errors import BadSettings
from verl_node.network import address
from verl_node.settings import parsing
from verl_node.settings.allocation import Allocation, number
from verl_node.settings.parsing import DASHBOARD, DEBUGGERS, choice
from verl_node.settings.ports import HeadPorts, parse_block
from verl_node.supervision.hang import HangPolicy

# Without Slurm no ports are reserved: Ray's defaults for the head, and a block below every common ephemeral range.
_HEAD_PORTS = "6380,6379,8265"
_PORT_BLOCK = "20000-20511"
_DASHBOARD_FIX = "Set it to 0 (off), 1 (on the head's loopback) or node (on its address), or unset it."
_DEBUG_FIX = "Set it to 1 (Ray's distributed debugger) or legacy (ray debug), or unset it."
_WANDB_WITHOUT_KEY = ("offline", "dryrun", "disabled")
_WANDB_HOST = "api.wandb.ai"


@dataclass(frozen=True)
class Settings:
    """Settings by the variables of docs/flow.md. Times in seconds, memory in bytes."""

    allocation: Allocation
    platform: str
    image: str
    image_digest: str
    head_node: str
    head_address: str
    node_address: str
    head_ports: HeadPorts
    port_block: tuple[int, int]
    token: bytes
    token_file: Path | None
    secrets: tuple[str, ...]
    dashboard: str
    debug: str
    lease: Path | None
    out_dir: Path
    run_dir: Path | None
    checkpoints: Path | None
    shared_folders: bool
    recipe: str
    overrides: tuple[str, ...]
    image_overrides: tuple[str, ...]
    plugin_variables: Mapping[str, str]
    attempt: int
    memory_bytes: int | None
    home: Path
    ray_temp_dir: Path
    join_timeout_s: float
    ray_timeout_s: float
    pull_timeout_s: float
    prepare_timeout_s: float
    silence_s: float
    stall_s: float
    hang: HangPolicy
    data_dir: Path
    data_source: Path | None
    model: str
    verl_checkout: Path | None
    checks: str
    doctor: str
    host_phases: Mapping[str, float]
    standalone: bool
    joins: bool
    environ: Mapping[str, str]

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read the environment of the container. Raises BadSettings."""
        allocation = Allocation.from_variables(environ)
        token = parsing.token(environ.get("VERLJOB_TOKEN_FILE", ""))
        home = Path(environ.get("HOME", "") or "/")
        return cls(
            allocation=allocation,
            platform=environ.get("VERLJOB_PLATFORM", "cpu"),
            image=environ.get("VERLJOB_IMAGE", ""),
            image_digest=environ.get("VERLJOB_IMAGE_DIGEST", ""),
            head_node=environ.get("VERLJOB_HEAD_NODE", "") or "".join(allocation.hosts[:1]),
            head_address=environ.get("VERLJOB_HEAD_ADDRESS", ""),
            node_address=environ.get("VERLJOB_NODE_ADDRESS", ""),
            head_ports=HeadPorts.parse(environ.get("VERLJOB_HEAD_PORTS", "") or _HEAD_PORTS),
            port_block=parse_block(environ.get("VERLJOB_PORT_BLOCK", "") or _PORT_BLOCK),
            token=token,
            token_file=parsing.path(environ, "VERLJOB_TOKEN_FILE"),
            secrets=(token.decode("utf-8", "replace"), *parsing.secrets(environ)),
            dashboard=choice(environ, "VERLJOB_DASHBOARD", DASHBOARD, _DASHBOARD_FIX),
            debug=choice(environ, "VERLJOB_DEBUG", DEBUGGERS, _DEBUG_FIX),
            lease=parsing.path(environ, "VERLJOB_LEASE"),
            out_dir=Path(environ.get("VERLJOB_OUT", "") or "/run/verljob/out"),
            run_dir=parsing.path(environ, "VERLJOB_RUN_DIR"),
            checkpoints=parsing.path(environ, "VERLJOB_CHECKPOINTS"),
            shared_folders=environ.get("VERLJOB_SHARED_FOLDERS", "") == "1",
            recipe=environ.get("VERLJOB_RECIPE", "") or "cluster",
            overrides=tuple(line for line in environ.get("VERLJOB_OVERRIDES", "").split("\n") if line.strip()),
            image_overrides=parsing.image_overrides(environ),
            plugin_variables=parsing.plugin_variables(environ),
            attempt=number(environ, "VERLJOB_ATTEMPT", 1),
            memory_bytes=number(environ, "VERLJOB_MEMORY_BYTES", 0) or None,
            home=home,
            ray_temp_dir=Path(environ.get("VERLJOB_RAY_TEMP_DIR", "") or "/tmp/ray"),  # noqa: S108  private to the job
            join_timeout_s=number(environ, "VERLJOB_JOIN_TIMEOUT_S", 600),
            ray_timeout_s=number(environ, "VERLJOB_RAY_TIMEOUT_S", 180),
            pull_timeout_s=number(environ, "VERLJOB_PULL_TIMEOUT_S", 1800),
            prepare_timeout_s=number(environ, "VERLJOB_PREPARE_TIMEOUT_S", 7200),
            silence_s=parsing.patience(environ, "VERLJOB_SILENCE_S", 60),
            stall_s=parsing.patience(environ, "VERLJOB_STALL_S", 20),
            hang=parsing.hang(environ),
            data_dir=parsing.path(environ, "VERLJOB_DATA") or home / ".cache" / "verljob",
            data_source=parsing.path(environ, "VERLJOB_DATA_SOURCE"),
            model=environ.get("VERLJOB_MODEL", ""),
            verl_checkout=parsing.path(environ, "VERLJOB_VERL"),
            checks=environ.get("VERLJOB_CHECKS", ""),
            doctor=choice(environ, "VERLJOB_DOCTOR", ("quick", "deep"), "Use `sbatch slurm/launch.sh doctor`."),
            host_phases=parsing.host_phases(environ),
            standalone=not allocation.job_id,
            joins=allocation.node_id > 0,
            environ=dict(environ),
        )

    def standalone_head(self, *, nodes: int | None, gpus: int | None) -> Settings:
        """Return the settings of `node --head`: the head of a cluster of ``nodes``, including this one."""
        self._require_standalone("--head")
        allocation = replace(self.allocation, nodes=nodes or 1, gpus=self.allocation.gpus if gpus is None else gpus)
        return replace(self, allocation=allocation)

    def standalone_worker(self, head: str, *, gpus: int | None) -> Settings:
        """Return the settings of `node --join HOST:PORT`."""
        self._require_standalone("--join")
        host, control = address.split(head)
        allocation = replace(self.allocation, gpus=self.allocation.gpus if gpus is None else gpus)
        ports = replace(self.head_ports, control=control)
        return replace(self, allocation=allocation, head_address=host, head_ports=ports, joins=True)

    @property
    def given_address(self) -> str:
        """This node's configured address or name; empty if it has to be detected."""
        return self.node_address or ("" if self.joins else self.head_address)

    def own_address(self) -> str:
        """Return this node's configured address, else the one by its route to the head. Raises BadSettings."""
        if self.given_address:
            return address.numeric(self.given_address)
        return address.own(self.head_address or self.head_node, self.allocation.hosts)

    @property
    def logs_to_wandb(self) -> bool:
        """Whether this account can log to Weights & Biases: with a key, with ~/.netrc, or offline."""
        if self.environ.get("WANDB_API_KEY") or self.environ.get("WANDB_MODE") in _WANDB_WITHOUT_KEY:
            return True
        try:
            entries = netrc.netrc(self.environ.get("NETRC") or str(self.home / ".netrc"))
        except (OSError, netrc.NetrcParseError):
            return False
        return entries.authenticators(_WANDB_HOST) is not None

    def _require_standalone(self, flag: str) -> None:
        if not self.standalone:
            raise BadSettings(
                f"`node {flag}` is for machines without Slurm, but this is job {self.allocation.job_id}.",
                fix="Use slurm/launch.sh, or unset SLURM_JOB_ID.",
            )
