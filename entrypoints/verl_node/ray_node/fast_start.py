"""Patches of `ray start`: Ray's helpers start after the cluster has formed, and the nodes start at the same time.

Unpatched, `ray start` waits for the imports of the dashboard and of the agents, and a worker for the head's raylet, one
after the other. On a machine with 16 cores a cluster of two nodes forms in 3 s with the patches and in 8 s without
(bench/launch/ray_start.py). The patches replace functions of ray._private, only in the process of `ray start`, and only
with the versions of Ray from OLDEST to NEWEST; with others `ray start` runs unchanged.

`before_start` is called in Ray's process (RAY_START_HOOK), not in the supervisor's: its arguments are environment
variables.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from verl_node.versions import Version

OLDEST: Version = (2, 40)
NEWEST: Version = (2, 60)

LOCK_VARIABLE = "VERLJOB_START_LOCK"  # path of the lock; unset where `ray start` runs unchanged
MAX_DELAY_S = 10.0
"""A raylet and its workers ask 30 times, a second apart, for the agent that collects their metrics, then do without it
(kMetricAgentInitMaxRetries of metrics_agent_client.h, Ray 2.60)."""

_POLL_S = 0.2
# Niceness by process types of ray/_private/ray_constants.py that a cluster does not need to form. Ray's workers have 15
# (RAY_worker_niceness): processes that people look at come before them, the rest after.
_NICENESS = {"dashboard": 10, "monitor": 10, "log_monitor": 19}
_AGENTS_NICENESS = 19
_AGENT_FLAGS = ("--dashboard_agent_command=", "--runtime_env_agent_command=")  # of the raylet, which starts its agents
_AGENT_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
# Waits until the lock is free or removed, then runs the command. It imports next to nothing: a node starts five.
_WAIT_FOR_LOCK = """\
import fcntl, os, sys
niceness, lock, *command = sys.argv[1:]
os.nice(int(niceness))
try:
    with open(lock, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
except FileNotFoundError:
    pass
os.execvp(command[0], command)
"""


def supported(ray: Version) -> bool:
    """Return whether the patches are used with this version of Ray."""
    return OLDEST <= ray <= NEWEST


class StartLock:
    """File lock that delays the helpers, until `release` or for MAX_DELAY_S; the kernel releases it if we die."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix="start-lock-", dir=folder)
        self.path = Path(name)
        self._lock = os.fdopen(descriptor, "wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        asyncio.get_running_loop().call_later(MAX_DELAY_S, self.release)

    def release(self) -> None:
        """Let the helpers start; later ones find no lock."""
        if not self._lock.closed:
            self.path.unlink()
            self._lock.close()


def delayed(niceness: int, lock: str) -> list[str]:
    """Return the prefix of a command that waits for ``lock`` and then runs with this niceness."""
    return [sys.executable, "-IS", "-c", _WAIT_FOR_LOCK, str(niceness), lock]


def before_start(ray_params: Any, head: bool) -> None:
    """Turn the Ray Client server off, and apply the patches if the supervisor holds a start lock.

    Two heads on one machine would share the client server's port by SO_REUSEPORT, and nothing of verl uses it;
    VERLJOB_RAY_CLIENT=1 keeps it.
    """
    if os.environ.get("VERLJOB_RAY_CLIENT", "0") in ("", "0"):
        ray_params.ray_client_server_port = None
    lock = os.environ.get(LOCK_VARIABLE)
    if not lock:
        return
    from ray._private import services  # only in Ray's process

    start = ProcessStarter(services, ray_params, float(os.environ["VERLJOB_RAY_TIMEOUT_S"]), lock)
    services.start_ray_process = start.start
    services.get_node = start.get_node
    if head:
        publish_dashboard(f"{ray_params.dashboard_host}:{ray_params.dashboard_port}")
    else:
        publish_head(os.environ["VERLJOB_RAY_HEAD_TEMP_DIR"])


class RayletEnded(Exception):
    """The raylet ended while it started. Not a RuntimeError, which `ray start` would take for a slow raylet."""


class ProcessStarter:
    """Replaces start_ray_process and get_node of ray._private.services."""

    def __init__(self, services: Any, ray_params: Any, timeout_s: float, lock: str) -> None:
        self._start, self._get_node = services.start_ray_process, services.get_node
        self._ports = {name: getattr(ray_params, name, None) for name in _AGENT_PORTS}
        self._timeout_s = timeout_s
        self._lock = lock
        self._raylet: Any = None

    def start(self, command: list[str], process_type: str, *arguments: Any, **named: Any) -> Any:
        """Start a process; delay one that the cluster does not need to form."""
        if process_type in _NICENESS:
            command = [*delayed(_NICENESS[process_type], self._lock), *command]
        if process_type == "raylet":
            nice = ["nice", f"--adjustment={_AGENTS_NICENESS}"]
            prefix = delayed(_AGENTS_NICENESS, self._lock) if self._publish_ports(command) else nice
            command = [_with_prefix(argument, prefix) for argument in command]
        started = self._start(command, process_type, *arguments, **named)
        if process_type == "raylet":
            self._raylet = started.process
        return started

    def get_node(self, *arguments: Any, **named: Any) -> Any:
        """Wait until the raylet has registered, for our own timeout, and no longer than it lives. Raises RayletEnded.

        `ray start` would wait 30 s, a constant in ray/_private/node.py from 2.51 on.
        """
        end = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._get_node(*arguments, **named)
            except RuntimeError:  # not registered yet
                code = None if self._raylet is None else self._raylet.poll()
                if code is not None:
                    raise RayletEnded(
                        f"the raylet ended with {code} before it joined (raylet.out, raylet.err)"
                    ) from None
                if time.monotonic() > end:
                    raise
                time.sleep(_POLL_S)

    def _publish_ports(self, raylet: Sequence[str]) -> bool:
        """Publish the ports of the agents before they listen; False if they are not fixed or this Ray reads none.

        Without them the raylet waits until its agents have been imported, and ends itself after 15 s, a constant
        (WaitForDashboardAgentPorts in node_manager.cc, seen with Ray 2.60).
        """
        from ray import _raylet  # only in Ray's process

        flags = dict(argument[2:].split("=", 1) for argument in raylet if argument.startswith("--") and "=" in argument)
        if not hasattr(_raylet, "persist_port") or not all(self._ports.values()):
            return False
        for name, port in self._ports.items():
            _raylet.persist_port(flags["session_dir"], flags["node_id"], name, port)
        return True


def _with_prefix(argument: str, prefix: Sequence[str]) -> str:
    """Return an argument of the raylet; in the command of an agent, with the prefix before it."""
    flag = next((flag for flag in _AGENT_FLAGS if argument.startswith(flag)), None)
    return argument if flag is None else f"{flag}{shlex.join(prefix)} {argument[len(flag) :]}"


def publish_dashboard(address: str) -> None:
    """Give the raylet the ``address`` of the dashboard before the dashboard has published it itself."""
    from ray._private.ray_constants import DASHBOARD_ADDRESS  # only in Ray's process
    from ray.experimental import internal_kv

    original = internal_kv._internal_kv_get

    def get(key: Any, *arguments: Any, **named: Any) -> Any:
        return address.encode() if key == DASHBOARD_ADDRESS else original(key, *arguments, **named)

    internal_kv._internal_kv_get = get


def publish_head(temp_dir: str) -> None:
    """Let a worker's raylet start at the same time as the head's.

    `ray start` polls every 2 s until the head's raylet has registered (ray/_private/node.py), only to read the folder
    of its files from it: ``temp_dir``.
    """
    from ray._private import node, utils  # only in Ray's process
    from ray._private.ray_constants import KV_NAMESPACE_SESSION

    def head(gcs_client: Any, **_: Any) -> list[SimpleNamespace]:
        name = utils.internal_kv_get_with_retry(gcs_client, "session_name", KV_NAMESPACE_SESSION, num_retries=1)
        return [SimpleNamespace(state=None, temp_dir=temp_dir, session_dir=os.path.join(temp_dir, name.decode()))]

    if hasattr(node, "get_all_node_info_until_retrieved"):
        node.get_all_node_info_until_retrieved = head
