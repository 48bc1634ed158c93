"""Everything that a node is told: the only module in the image that reads the environment."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from verl_node import address
from verl_node.allocation import Allocation, number
from verl_node.debugging import MODES
from verl_node.errors import BadSettings
from verl_node.ports import HeadPorts, parse_block
from verl_node.progress import END, OFF, REPORT, HangPolicy

# By hand nothing is reserved: Ray's own defaults for the head, and blocks below every common ephemeral range.
_HEAD_PORTS = "6380,6379,8265"
_PORT_BLOCK = "20000-20511"
_WANDB_WITHOUT_KEY = ("offline", "dryrun", "disabled")
_WANDB_HOST = "api.wandb.ai"
DASHBOARD = ("0", "1", "node")


@dataclass(frozen=True)
class Settings:
    """What this node is told; docs/flow.md gives the variables. Times in seconds, memory in bytes."""

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
    recipe: str
    overrides: tuple[str, ...]
    attempt: int
    memory_bytes: int | None
    home: Path
    ray_temp_dir: Path
    join_timeout_s: float
    ray_timeout_s: float
    pull_timeout_s: float
    prepare_timeout_s: float
    hang: HangPolicy
    data_dir: Path
    data_source: Path | None
    model: str
    verl_checkout: Path | None
    checks: str
    doctor: str
    host_phases: Mapping[str, float]
    by_hand: bool
    joins: bool
    environ: Mapping[str, str]

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read the environment of the container. Raises BadSettings."""
        allocation = Allocation.from_variables(environ)
        token = _token(environ.get("VERLJOB_TOKEN_FILE", ""))
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
            token_file=_path(environ, "VERLJOB_TOKEN_FILE"),
            secrets=(token.decode("utf-8", "replace"), *_secrets(environ)),
            dashboard=_dashboard(environ.get("VERLJOB_DASHBOARD", "")),
            debug=_debug(environ.get("VERLJOB_DEBUG", "")),
            lease=_path(environ, "VERLJOB_LEASE"),
            out_dir=Path(environ.get("VERLJOB_OUT", "") or "/run/verljob/out"),
            run_dir=_path(environ, "VERLJOB_RUN_DIR"),
            checkpoints=_path(environ, "VERLJOB_CHECKPOINTS"),
            recipe=environ.get("VERLJOB_RECIPE", "") or "cluster",
            overrides=tuple(line for line in environ.get("VERLJOB_OVERRIDES", "").splitlines() if line.strip()),
            attempt=number(environ, "VERLJOB_ATTEMPT", 1),
            memory_bytes=number(environ, "VERLJOB_MEMORY_BYTES", 0) or None,
            home=home,
            ray_temp_dir=Path(environ.get("VERLJOB_RAY_TEMP_DIR", "") or "/tmp/ray"),  # noqa: S108  private to the job
            join_timeout_s=number(environ, "VERLJOB_JOIN_TIMEOUT_S", 600),
            ray_timeout_s=number(environ, "VERLJOB_RAY_TIMEOUT_S", 180),
            pull_timeout_s=number(environ, "VERLJOB_PULL_TIMEOUT_S", 1800),
            prepare_timeout_s=number(environ, "VERLJOB_PREPARE_TIMEOUT_S", 7200),
            hang=_hang(environ),
            data_dir=_path(environ, "VERLJOB_DATA") or home / ".cache" / "verljob",
            data_source=_path(environ, "VERLJOB_DATA_SOURCE"),
            model=environ.get("VERLJOB_MODEL", ""),
            verl_checkout=_path(environ, "VERLJOB_VERL"),
            checks=environ.get("VERLJOB_CHECKS", ""),
            doctor=_doctor(environ.get("VERLJOB_DOCTOR", "")),
            host_phases=_host_phases(environ),
            by_hand=not allocation.job_id,
            joins=allocation.node_id > 0,
            environ=dict(environ),
        )

    def headed_by_hand(self, *, nodes: int | None, gpus: int | None) -> Settings:
        """Return the settings of `node --head`: this node leads a cluster of ``nodes``, itself included."""
        self._only_by_hand("--head")
        allocation = replace(self.allocation, nodes=nodes or 1, gpus=self.allocation.gpus if gpus is None else gpus)
        return replace(self, allocation=allocation)

    def joined_by_hand(self, head: str, *, gpus: int | None) -> Settings:
        """Return the settings of `node --join HOST:PORT`; the head will tell the rest."""
        self._only_by_hand("--join")
        host, control = address.split(head)
        allocation = replace(self.allocation, gpus=self.allocation.gpus if gpus is None else gpus)
        ports = replace(self.head_ports, control=control)
        return replace(self, allocation=allocation, head_address=host, head_ports=ports, joins=True)

    @property
    def logs_to_wandb(self) -> bool:
        """Whether this account can log to Weights & Biases: by a key, by its ~/.netrc, or without the network."""
        if self.environ.get("WANDB_API_KEY") or self.environ.get("WANDB_MODE") in _WANDB_WITHOUT_KEY:
            return True
        try:
            return _WANDB_HOST in Path(self.environ.get("NETRC") or self.home / ".netrc").read_text()
        except OSError:
            return False

    def _only_by_hand(self, flag: str) -> None:
        if not self.by_hand:
            raise BadSettings(
                f"`node {flag}` is for machines without Slurm, but this is job {self.allocation.job_id}.",
                fix="Use slurm/launch.sh, or unset SLURM_JOB_ID.",
            )


def _host_phases(environ: Mapping[str, str]) -> dict[str, float]:
    """Return the seconds of what node.sh did before this process: host and container share a clock."""
    image_ms, began_ms = number(environ, "VERLJOB_IMAGE_MS", 0), number(environ, "VERLJOB_CONTAINER_BEGAN_MS", 0)
    return {"image": image_ms / 1000, "container": max(0.0, time.time() - began_ms / 1000)} if began_ms else {}


def _hang(environ: Mapping[str, str]) -> HangPolicy:
    action = environ.get("VERLJOB_HANG", "") or (OFF if environ.get("VERLJOB_DEBUG") else REPORT)  # who debugs waits
    if action not in (REPORT, END, OFF):
        raise BadSettings(f"VERLJOB_HANG is {action!r}.", fix=f"Set it to {REPORT}, {END} or {OFF}, or unset it.")
    default = HangPolicy()
    return HangPolicy(
        action=action,
        factor=number(environ, "VERLJOB_HANG_FACTOR", default.factor),
        margin_s=number(environ, "VERLJOB_HANG_MARGIN_S", int(default.margin_s)),
        first_step_s=number(environ, "VERLJOB_FIRST_STEP_TIMEOUT_S", int(default.first_step_s)),
    )


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    value = environ.get(name, "")
    if value and not Path(value).is_absolute():
        raise BadSettings(
            f"{name} is {value!r}, which is not an absolute path.", fix=f"Write {name} out from the root."
        )
    return Path(value) if value else None


def _secrets(environ: Mapping[str, str]) -> list[str]:
    """Return the values that came by file: entrypoint.sh adds their names to what the user named."""
    names = environ.get("VERLJOB_SECRET_NAMES", "").split(",")
    return [environ[name] for name in names if environ.get(name)]


def _debug(asked: str) -> str:
    if asked not in MODES:
        raise BadSettings(
            f"VERLJOB_DEBUG is {asked!r}.",
            fix="Write 1 (Ray's distributed debugger) or legacy (ray debug), or unset it.",
        )
    return asked


def _doctor(asked: str) -> str:
    if asked not in ("", "quick", "deep"):
        raise BadSettings(f"VERLJOB_DOCTOR is {asked!r}.", fix="Use `sbatch slurm/launch.sh doctor`, which sets it.")
    return asked


def _dashboard(asked: str) -> str:
    if asked not in ("", *DASHBOARD):
        raise BadSettings(
            f"VERLJOB_DASHBOARD is {asked!r}.",
            fix="Write 0 (off), 1 (on the head's loopback) or node (on its address), or unset it.",
        )
    return asked


def _token(path: str) -> bytes:
    if not path:
        return b""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise BadSettings(
            f"The token file {path} cannot be read: {error.strerror}.",
            fix="Let node.sh write it (mode 0600, owned by the job's account), or unset VERLJOB_TOKEN_FILE.",
        ) from error
    if not token:
        raise BadSettings(f"The token file {path} is empty.", fix="Let slurm/launch.sh make the token of the job.")
    return token
