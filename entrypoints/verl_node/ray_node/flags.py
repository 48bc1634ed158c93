"""Flags of `ray start` by Ray version; addresses, ports and sizes are always explicit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verl_node import versions
from verl_node.errors import BadSettings, CheckFailed
from verl_node.settings.parsing import LEGACY
from verl_node.settings.ports import HeadPorts, NodePorts
from verl_node.versions import Version

OLDEST: Version = (2, 40)

# The only flag below that is not in every Ray from 2.40 to 2.60; its help says "no longer used" from 2.45 on.
_DASHBOARD_GRPC_BEFORE: Version = (2, 45)

TOKENS_SINCE: Version = (2, 52)
"""Earlier versions have no authentication. The servers of all versions listen on every interface."""

LOOPBACK = "127.0.0.1"

# sun_path holds 107 bytes; Ray adds /session_<date>_<time>_<microseconds>_<pid>/sockets/plasma_store to the temp dir.
_SOCKET_PATH_MAX = 107
_SESSION = "/session_2000-01-01_00-00-00_000000_4194304/sockets/plasma_store"


@dataclass(frozen=True)
class Share:
    """Resources that this node gives to Ray; memory in bytes, None if Ray shall detect it."""

    cpus: int
    gpus: int
    memory: int | None
    object_store_memory: int | None


def supported(version: str) -> Version:
    """Parse Ray's version. Raises CheckFailed if Ray is not installed or too old."""
    if not version:
        raise CheckFailed(
            "Ray is not installed.", fix="Run inside an image of this toolkit, or pip install 'ray[default]'."
        )
    parsed = versions.parse(version)
    if parsed < OLDEST:
        raise CheckFailed(f"Ray {version} is older than 2.40.", fix="Use an image with Ray 2.40 or later.")
    return parsed


def protected(version: Version, token_file: Path | None) -> bool:
    """Return whether Ray requires the job's token."""
    return token_file is not None and version >= TOKENS_SINCE


def dashboard_host(version: Version, setting: str, *, node_address: str) -> str:
    """Return the address of the dashboard, empty for none.

    ``setting`` is VERLJOB_DASHBOARD: 0, 1, node, or empty: then it is on if Ray requires a token. Every process that
    reaches a dashboard without tokens can run code as the job's account; on a shared node other accounts reach the
    loopback.
    """
    if setting == "0" or (not setting and version < TOKENS_SINCE):
        return ""
    return node_address if setting == "node" else LOOPBACK


def head_argv(
    version: Version,
    *,
    node_address: str,
    dashboard: str,
    host: str,
    ports: NodePorts,
    head: HeadPorts,
    share: Share,
    temp_dir: Path,
    debug: str = "",
) -> list[str]:
    """Return the command that starts the head; ``dashboard`` is the dashboard's address, empty for none.

    Raises BadSettings for a temp dir that is too long.
    """
    dashboard_flags = [
        "--include-dashboard=true",
        f"--dashboard-host={dashboard}",
        f"--dashboard-port={head.dashboard}",
    ]
    return [
        *("ray", "start", "--head", f"--port={head.gcs}"),
        *(dashboard_flags if dashboard else ["--include-dashboard=false"]),
        *([f"--dashboard-grpc-port={ports.dashboard_grpc}"] if version < _DASHBOARD_GRPC_BEFORE else []),
        f"--ray-client-server-port={ports.client_server}",  # fast_start.py turns it off
        "--disable-usage-stats",
        *_debugger(debug),
        *_common(node_address, host, ports, share, temp_dir),
    ]


def worker_argv(
    gcs: str, *, node_address: str, host: str, ports: NodePorts, share: Share, temp_dir: Path, debug: str = ""
) -> list[str]:
    """Return the command that joins the head at ``gcs``. Raises BadSettings for a temp dir that is too long."""
    common = _common(node_address, host, ports, share, temp_dir)
    return ["ray", "start", f"--address={gcs}", *_debugger(debug), *common]


def _debugger(mode: str) -> list[str]:
    """Return the flag of the old debugger, which else is reached only from its own node."""
    return ["--ray-debugger-external"] if mode == LEGACY else []


def _common(node_address: str, host: str, ports: NodePorts, share: Share, temp_dir: Path) -> list[str]:
    longest = len(f"{temp_dir}{_SESSION}".encode())
    if longest > _SOCKET_PATH_MAX:
        raise BadSettings(
            f"Ray's sockets under {temp_dir} would have paths of {longest} bytes, and {_SOCKET_PATH_MAX} are allowed.",
            fix=f"Choose a folder of at most {_SOCKET_PATH_MAX - len(_SESSION)} bytes (VERLJOB_RAY_TEMP_DIR).",
        )
    flags = {
        "node-ip-address": node_address,
        "node-name": host,
        "node-manager-port": ports.node_manager,
        "object-manager-port": ports.object_manager,
        "dashboard-agent-listen-port": ports.agent_http,
        "dashboard-agent-grpc-port": ports.agent_grpc,
        "runtime-env-agent-port": ports.runtime_env_agent,
        "metrics-export-port": ports.metrics_export,
        "min-worker-port": ports.workers_first,
        "max-worker-port": ports.workers_last,
        "num-cpus": share.cpus,
        "num-gpus": share.gpus,
        "memory": share.memory,
        "object-store-memory": share.object_store_memory,
        "temp-dir": temp_dir,
        "log-color": "false",
    }
    return [*(f"--{name}={value}" for name, value in flags.items() if value is not None), "--block"]
