"""Patches `ray start` through RAY_START_HOOK, where Ray has no flag or variable.

It runs in Ray's process and not in the supervisor's, so it is told by the environment. It changes functions of
ray._private in the process that is about to be `ray start`, and nowhere else; a Ray that lacks one is left as it is.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from verl_node.ray_node import deferred_start

_POLL_S = 0.2
# Process types of ray/_private/ray_constants.py that no forming cluster waits for. Ray gives its workers 15
# (RAY_worker_niceness): what somebody looks at comes before them, the rest behind.
_NICE = {"dashboard": 10, "monitor": 10, "log_monitor": 19}
_AGENTS_NICE = 19
# Flags of the raylet, which starts its agents itself. Each takes seconds of a core for its imports, as the node joins.
_AGENTS = ("--dashboard_agent_command=", "--runtime_env_agent_command=")
_AGENT_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")


class RayletEnded(Exception):
    """The raylet ended while it started. No RuntimeError: `ray start` would take that for a raylet that is slow."""


def before_start(ray_params: Any, head: bool) -> None:
    """Turn the Ray Client server off, and start everything in the order in which a cluster waits for it.

    Two heads on one machine would share the client server's port by SO_REUSEPORT, and nothing of verl uses it;
    VERLJOB_RAY_CLIENT=1 keeps it.
    """
    if os.environ.get("VERLJOB_RAY_CLIENT", "0") in ("", "0"):
        ray_params.ray_client_server_port = None
    from ray._private import services  # only in Ray's process

    start = Start(services, ray_params, float(os.environ["VERLJOB_RAY_TIMEOUT_S"]))
    services.start_ray_process = start.process
    services.get_node = start.node
    if head:
        know_the_dashboard(f"{ray_params.dashboard_host}:{ray_params.dashboard_port}")
    else:
        know_the_head(os.environ["VERLJOB_RAY_HEAD_TEMP_DIR"])


class Start:
    """The processes of one `ray start`, and its wait for the raylet among them."""

    def __init__(self, services: Any, ray_params: Any, timeout_s: float) -> None:
        self._start, self._ask = services.start_ray_process, services.get_node
        self._ports = {name: getattr(ray_params, name, None) for name in _AGENT_PORTS}
        self._timeout_s = timeout_s
        self._raylet: Any = None

    def process(self, command: list[str], process_type: str, *arguments: Any, **named: Any) -> Any:
        """Start one. Where there are few cores, what nothing waits for stands back."""
        first = _later(_NICE[process_type]) if process_type in _NICE else []
        if process_type == "raylet":
            known = self._leave_ports(command)
            command = [_behind(word, _later if known else _nice) for word in command]
        started = self._start([*first, *command], process_type, *arguments, **named)
        if process_type == "raylet":
            self._raylet = started.process
        return started

    def node(self, *arguments: Any, **named: Any) -> Any:
        """Wait for the raylet as long as we do, and no longer than it lives.

        `ray start` would wait 30 s, a constant in ray/_private/node.py from 2.51 on. Raises RayletEnded.
        """
        end = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._ask(*arguments, **named)
            except RuntimeError:  # not registered yet
                code = None if self._raylet is None else self._raylet.poll()
                if code is not None:
                    raise RayletEnded(
                        f"the raylet ended with {code} before it joined (raylet.out, raylet.err)"
                    ) from None
                if time.monotonic() > end:
                    raise
                time.sleep(_POLL_S)

    def _leave_ports(self, raylet: Sequence[str]) -> bool:
        """Say in its agents' place on which ports they will listen, if those are fixed and this Ray asks for them.

        The raylet would wait for that until they have imported what they need, seconds of a core, and end itself after
        15 s, a constant (WaitForDashboardAgentPorts in node_manager.cc, seen with Ray 2.60).
        """
        from ray import _raylet  # only in Ray's process

        flags = dict(word[2:].split("=", 1) for word in raylet if word.startswith("--") and "=" in word)
        if not hasattr(_raylet, "persist_port") or not all(self._ports.values()):
            return False
        for name, port in self._ports.items():
            _raylet.persist_port(flags["session_dir"], flags["node_id"], name, port)
        return True


def _behind(word: str, first: Callable[[int], list[str]]) -> str:
    """Have an agent of the raylet stand back, if it is the flag with its command line."""
    flag = next((flag for flag in _AGENTS if word.startswith(flag)), None)
    return word if flag is None else f"{flag}{shlex.join(first(_AGENTS_NICE))} {word[len(flag) :]}"


def _later(niceness: int) -> list[str]:
    return deferred_start.words(niceness, os.environ[deferred_start.VARIABLE])


def _nice(adjustment: int) -> list[str]:
    return ["nice", f"--adjustment={adjustment}"]


def know_the_dashboard(address: str) -> None:
    """Have the raylet start before the dashboard has said its ``address``, after seconds of imports."""
    from ray._private.ray_constants import DASHBOARD_ADDRESS  # only in Ray's process
    from ray.experimental import internal_kv

    ask = internal_kv._internal_kv_get

    def get(key: Any, *arguments: Any, **named: Any) -> Any:
        return address.encode() if key == DASHBOARD_ADDRESS else ask(key, *arguments, **named)

    internal_kv._internal_kv_get = get


def know_the_head(temp_dir: str) -> None:
    """Have a worker's raylet start beside the head's, and not after it.

    `ray start` would wait, looking every 2 s, until the head's raylet has registered (ray/_private/node.py), and then
    ask it for nothing but where it keeps its files: ``temp_dir``.
    """
    from ray._private import node, utils  # only in Ray's process
    from ray._private.ray_constants import KV_NAMESPACE_SESSION

    def head(gcs_client: Any, **_: Any) -> list[SimpleNamespace]:
        name = utils.internal_kv_get_with_retry(gcs_client, "session_name", KV_NAMESPACE_SESSION, num_retries=1)
        return [SimpleNamespace(state=None, temp_dir=temp_dir, session_dir=os.path.join(temp_dir, name.decode()))]

    if hasattr(node, "get_all_node_info_until_retrieved"):
        node.get_all_node_info_until_retrieved = head
