"""Called inside `ray start` through RAY_START_HOOK, for what no flag and no variable can say.

It runs in Ray's process and not in the supervisor's, so it is told by the environment.
"""

from __future__ import annotations

import os
import time
from typing import Any

_POLL_S = 0.2
_BEHIND = ("dashboard", "monitor", "log_monitor")  # process types of ray/_private/ray_constants.py


def before_start(ray_params: Any, head: bool) -> None:
    """Turn the Ray Client server off, and have `ray start` wait for its raylet as long as we do.

    Two heads on one machine would share the client server's port by SO_REUSEPORT, and nothing of verl uses it;
    VERLJOB_RAY_CLIENT=1 keeps it. For the raylet `ray start` waits 30 s, a constant in ray/_private/node.py from 2.51
    on, which a busy machine needs for the imports of Ray's agents alone.
    """
    timeout_s = float(os.environ["VERLJOB_RAY_TIMEOUT_S"])
    if os.environ.get("VERLJOB_RAY_CLIENT", "0") in ("", "0"):
        ray_params.ray_client_server_port = None
    wait_for_the_raylet(timeout_s)
    if head:
        start_the_raylet_first(f"{ray_params.dashboard_host}:{ray_params.dashboard_port}")
    else:
        look_often_for_the_head(timeout_s)


def wait_for_the_raylet(timeout_s: float) -> None:
    """Make Ray's question for its own node an answer that may take this long."""
    from ray._private import services  # only in Ray's process

    ask = services.get_node

    def get_node(*arguments: Any, **named: Any) -> Any:
        end = time.monotonic() + timeout_s
        while True:
            try:
                return ask(*arguments, **named)
            except RuntimeError:  # not registered yet
                if time.monotonic() > end:
                    raise
                time.sleep(_POLL_S)

    services.get_node = get_node


def look_often_for_the_head(timeout_s: float) -> None:
    """Have a worker ask for the head's raylet as often as we poll; Ray asks every 2 s (ray/_private/utils.py)."""
    from ray._private import node  # only in Ray's process
    from ray.exceptions import RpcError

    if not hasattr(node, "get_all_node_info_until_retrieved"):
        return  # this Ray does not wait for it
    wait = node.get_all_node_info_until_retrieved

    def wait_often(gcs_client: Any, *, timeout_per_retry: float, node_selectors: Any) -> Any:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            try:
                if gcs_client.get_all_node_info(timeout=timeout_per_retry, node_selectors=node_selectors):
                    break
            except RpcError:  # Ray's own question, below, meets it again and says what it is
                break
            time.sleep(_POLL_S)
        return wait(gcs_client, timeout_per_retry=timeout_per_retry, node_selectors=node_selectors)

    node.get_all_node_info_until_retrieved = wait_often


def start_the_raylet_first(dashboard: str) -> None:
    """Have the raylet and its agents, which the cluster waits for, go before what nothing waits for.

    `ray start --head` would start the raylet when the ``dashboard`` has said its address, after seconds of imports; the
    address is known. Where there are few cores the dashboard, the autoscaler's monitor and the log monitor stand back.
    """
    from ray._private import services  # only in Ray's process
    from ray.experimental import internal_kv

    ask, start = internal_kv._internal_kv_get, services.start_ray_process

    def get(key: Any, *arguments: Any, **named: Any) -> Any:
        known = key == services.ray_constants.DASHBOARD_ADDRESS
        return dashboard.encode() if known else ask(key, *arguments, **named)

    def start_ray_process(command: list[str], process_type: str, *arguments: Any, **named: Any) -> Any:
        first = ["nice", "--adjustment=10"] if process_type in _BEHIND else []
        return start([*first, *command], process_type, *arguments, **named)

    internal_kv._internal_kv_get = get
    services.start_ray_process = start_ray_process
