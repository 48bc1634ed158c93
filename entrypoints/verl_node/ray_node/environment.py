"""Environment variables of every Ray process of a node, and so of verl's workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from verl_node.gpu import visible_devices
from verl_node.ray_node import debugging
from verl_node.ray_node.flags import port_environment
from verl_node.settings.ports import NodePorts
from verl_node.versions import Version

# The first driver would have the raylet start a Python process for each CPU, 192 of them on a large node, and wait;
# verl's workers, which have a runtime environment of their own, take none of them. A value that the user exported wins.
_TUNING = {
    "RAY_prestart_worker_first_driver": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_preload_python_modules": "verl_node.ray_node.worker_setup",
}
_START_HOOK = "verl_node.ray_node.hook.before_start"


def build(
    environ: Mapping[str, str],
    *,
    gcs: str,
    ports: NodePorts,
    platform: str,
    gpus: int,
    ray: Version,
    start_timeout_s: float,
    silence_s: float,
    token_file: Path | None,
    verl_checkout: Path | None,
    training: Mapping[str, str],
    fabric: Mapping[str, str],
    debug: str = "",
) -> dict[str, str]:
    """Return it. ``training`` holds the variables of the training itself, which win; ``fabric`` what was found of the
    network for those that nobody set. Raises BadSettings (masks).

    verl drops from its runtime environment what the driver's shell sets, and forwards few names: what a worker shall
    see has to be here, before `ray start`.
    """
    visible = visible_devices.visible_devices(platform)
    built = visible_devices.with_one_mask(environ, platform=platform, gpus=gpus, visible=visible, ray=ray)
    _authenticate(built, token_file)
    for name, value in {**_TUNING, **_patience(silence_s)}.items():
        built.setdefault(name, value)
    built.setdefault("RAY_raylet_start_wait_time_s", f"{start_timeout_s:.0f}")
    # A task with a runtime environment waits for the agent that makes it; then the raylet would end itself.
    built.setdefault("RAY_agent_register_timeout_ms", f"{start_timeout_s * 1000:.0f}")
    # Ray kills a worker process that has not registered after 60 s; a busy node and a slow file system take longer
    # (https://github.com/ray-project/ray/issues/8890, /65067).
    built.setdefault("RAY_worker_register_timeout_seconds", f"{max(60.0, start_timeout_s):.0f}")
    # A worker looks every 2 s for the session that the head writes down; 20 times if nobody says more.
    built.setdefault("RAY_NUM_REDIS_GET_RETRIES", f"{max(20.0, start_timeout_s):.0f}")
    built.update(RAY_START_HOOK=_START_HOOK, VERLJOB_RAY_TIMEOUT_S=str(start_timeout_s))
    if verl_checkout is not None:
        built["PYTHONPATH"] = os.pathsep.join(filter(None, [str(verl_checkout), environ.get("PYTHONPATH", "")]))
    built.update(debugging.environment(debug, ports))
    built[debugging.SUPERVISOR] = str(os.getpid())
    return {**built, **fabric, **port_environment(ports), **training, "RAY_ADDRESS": gcs}


def _patience(silence_s: float) -> dict[str, str]:
    """Return what keeps Ray from ending anything before the control channel takes a silent node for lost.

    Ray's waits are ``15 * silence_s``: TCP doubles the pause before each retransmission, up to 120 s, so a connection
    may stay quiet for as long again after the network is back, and for minutes where half of what is sent is lost. With
    the default of 60 s that is as long as Linux itself retransmits (tcp_retries2 of 15: at least 924.6 s). It is not
    endless: a training whose connection a firewall forgot ends then. Names and defaults are those of
    src/ray/common/ray_config_def.h (Ray 2.60; those of 2.4x are the same, and a Ray that does not know one ignores it):

    - The GCS asks each raylet for its health, and marks the node dead after ``failure_threshold`` failures in a row, a
      ``period`` apart where they fail at once. 45 x silence/3 is 15 times the silence.
    - A raylet that cannot reach the GCS for ``gcs_rpc_server_reconnect_timeout_s`` ends itself (60 s); a synchronous
      request to the GCS raises after ``gcs_server_request_timeout_seconds`` (60 s).
    - A process that just starts gives up after ``py_gcs_connect_timeout_s`` (30 s): one of them, the log monitor, takes
      `ray start` along. Twice the silence.
    - gRPC closes a connection on which sent data or a ping was not acknowledged within its keepalive timeout, which is
      also TCP_USER_TIMEOUT: 20 s for every server of Ray's (rpc/grpc_server.cc), 120 s for its clients. An actor's
      answer that meets an outage of more than 20 s would fail the task, and with it the training.
    - An actor cancels a task whose predecessor has not come after ``actor_scheduling_queue_max_reorder_wait_seconds``
      (30 s).
    """
    patience_s = 15 * silence_s
    asking_ms = f"{silence_s * 1000 / 3:.0f}"
    return {
        "RAY_health_check_period_ms": asking_ms,
        "RAY_health_check_timeout_ms": asking_ms,
        "RAY_health_check_failure_threshold": "45",
        "RAY_gcs_rpc_server_reconnect_timeout_s": f"{patience_s:.0f}",
        "RAY_gcs_server_request_timeout_seconds": f"{patience_s:.0f}",
        "RAY_py_gcs_connect_timeout_s": f"{max(30.0, 2 * silence_s):.0f}",
        "RAY_grpc_keepalive_timeout_ms": f"{patience_s * 1000:.0f}",
        "RAY_grpc_client_keepalive_timeout_ms": f"{patience_s * 1000:.0f}",
        "RAY_actor_scheduling_queue_max_reorder_wait_seconds": f"{patience_s:.0f}",
    }


def _authenticate(built: dict[str, str], token_file: Path | None) -> None:
    """Have Ray ask everybody for the job's token; a Ray that is too old for one does not know these variables.

    RAY_AUTH_TOKEN would win over the file. By hand, where there may be no token, it is off unless somebody turned it
    on: a Ray that turns it on by itself makes a token that the other machines do not have.
    """
    if token_file is None:
        built.setdefault("RAY_AUTH_MODE", "disabled")
        return
    built.pop("RAY_AUTH_TOKEN", None)
    built.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token_file))
