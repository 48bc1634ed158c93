"""Environment variables of every Ray process of a node, and so of verl's workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from verl_node.gpu import visible_devices
from verl_node.network import fabric
from verl_node.settings.parsing import LEGACY, NO_DEBUGGER
from verl_node.settings.ports import NodePorts
from verl_node.settings.settings import Settings
from verl_node.versions import Version

_DEFAULTS = {
    # The first driver would have the raylet start a Python process per CPU, 192 of them on a large node, and wait;
    # verl's workers, which have a runtime environment of their own, use none of them.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_preload_python_modules": "verl_node.ray_node.worker_setup",
}
_START_HOOK = "verl_node.ray_node.fast_start.before_start"


def build(
    settings: Settings, *, ports: NodePorts, gpus: int, ray: Version, training: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment before the nodes have met; `complete` adds the cluster. Raises BadSettings (masks).

    ``training`` holds the variables of the training, which take precedence. verl drops from its runtime environment
    the variables that the driver's shell sets, and forwards few: those of the workers have to be set here, before
    `ray start`. Ray reads some of them when it is imported, others when it starts.
    """
    visible = visible_devices.visible_devices(settings.platform)
    env = visible_devices.with_one_mask(
        settings.environ, platform=settings.platform, gpus=gpus, visible=visible, ray=ray
    )
    _set_authentication(env, settings.token_file)
    for name, value in {**_DEFAULTS, **_timeouts(settings.ray_timeout_s), **_patience(settings.silence_s)}.items():
        env.setdefault(name, value)  # an exported value takes precedence
    if settings.verl_checkout is not None:
        paths = [str(settings.verl_checkout), settings.environ.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return {
        **env,
        **debugger(settings.debug, ports),
        "RAY_START_HOOK": _START_HOOK,
        "VERLJOB_RAY_TIMEOUT_S": str(settings.ray_timeout_s),
        "VERLJOB_SUPERVISOR_PID": str(os.getpid()),  # for worker_setup.py
        "AUTOSCALER_METRIC_PORT": str(ports.autoscaler_metrics),
        "DASHBOARD_METRIC_PORT": str(ports.dashboard_metrics),
        "MASTER_PORT": str(ports.master),
        **training,
        "RAY_ADDRESS": "",
    }


def complete(
    env: Mapping[str, str],
    *,
    gcs: str,
    own_address: str,
    plugin_variables: Mapping[str, str],
    doctor: str,
    note: Callable[[str], None],
) -> dict[str, str]:
    """Return the environment with the address of the GCS, and NCCL's variables for the network of ``own_address``."""
    found = fabric.discover_on_this_node(own_address, env, plugin_variables=plugin_variables)
    variables = found.variables(env)
    text = ", ".join(f"{name} {value}" for name, value in variables.items()) or "nothing to set"
    note("; ".join([f"fabric: {text}", *found.notes]))
    for line in found.lines(env) if doctor else ():
        note(line)
    return {**env, **variables, "RAY_ADDRESS": gcs}


def debugger(mode: str, ports: NodePorts) -> dict[str, str]:
    """Return the variables of one of Ray's debuggers (VERLJOB_DEBUG), with the other one off.

    The debuggers have no authentication: every process that reaches the node can run code as the job's account.
    """
    if mode == NO_DEBUGGER:
        return {}
    assert ports.debuggers is not None
    block = {"VERLJOB_DEBUG_PORTS": "{}-{}".format(*ports.debuggers)}  # for worker_setup.py
    if mode == LEGACY:
        return {"RAY_DEBUG": "legacy", "RAY_DEBUG_POST_MORTEM": "0", **block}
    return {"RAY_DEBUG": "1", "RAY_DEBUG_POST_MORTEM": "1", **block}


def _timeouts(start_s: float) -> dict[str, str]:
    """Return Ray's own timeouts of a start, which must not be shorter than ours."""
    return {
        "RAY_raylet_start_wait_time_s": f"{start_s:.0f}",
        # A task with a runtime environment waits for the agent that creates it; then the raylet would end itself.
        "RAY_agent_register_timeout_ms": f"{start_s * 1000:.0f}",
        # Ray kills a worker process that has not registered after 60 s; a busy node and a slow file system take longer
        # (https://github.com/ray-project/ray/issues/8890, /65067).
        "RAY_worker_register_timeout_seconds": f"{max(60.0, start_s):.0f}",
        # A worker polls every 2 s for the session that the head writes, 20 times by default.
        "RAY_NUM_REDIS_GET_RETRIES": f"{max(20.0, start_s):.0f}",
    }


def _patience(silence_s: float) -> dict[str, str]:
    """Return timeouts with which Ray ends nothing before the control channel reports a silent node as lost.

    Ray's waits are ``15 * silence_s``: TCP doubles the pause before each retransmission, up to 120 s, so a connection
    may stay quiet for as long again after the network is back, and for minutes if half of the packets are lost. With
    the default of 60 s that is as long as Linux itself retransmits (tcp_retries2 of 15: at least 924.6 s). It is not
    endless: a training whose connection a firewall forgot ends then. Names and defaults are those of
    src/ray/common/ray_config_def.h (Ray 2.60; those of 2.4x are the same, and a Ray that does not know one ignores it):

    - The GCS checks the health of each raylet, and marks the node dead after ``failure_threshold`` failures in a row, a
      ``period`` apart if they fail at once. 45 x silence/3 is 15 times the silence.
    - A raylet that cannot reach the GCS for ``gcs_rpc_server_reconnect_timeout_s`` ends itself (60 s); a synchronous
      request to the GCS raises after ``gcs_server_request_timeout_seconds`` (60 s).
    - A process that starts times out after ``py_gcs_connect_timeout_s`` (30 s); one of them, the log monitor, ends
      `ray start`, too. Twice the silence.
    - gRPC closes a connection on which sent data or a ping was not acknowledged within its keepalive timeout, which is
      also TCP_USER_TIMEOUT: 20 s for every server of Ray's (rpc/grpc_server.cc), 120 s for its clients. An actor's
      answer that meets an outage of more than 20 s would fail the task, and with it the training.
    - An actor cancels a task whose predecessor has not come after ``actor_scheduling_queue_max_reorder_wait_seconds``
      (30 s).
    """
    patience_s = 15 * silence_s
    period_ms = f"{silence_s * 1000 / 3:.0f}"
    return {
        "RAY_health_check_period_ms": period_ms,
        "RAY_health_check_timeout_ms": period_ms,
        "RAY_health_check_failure_threshold": "45",
        "RAY_gcs_rpc_server_reconnect_timeout_s": f"{patience_s:.0f}",
        "RAY_gcs_server_request_timeout_seconds": f"{patience_s:.0f}",
        "RAY_py_gcs_connect_timeout_s": f"{max(30.0, 2 * silence_s):.0f}",
        "RAY_grpc_keepalive_timeout_ms": f"{patience_s * 1000:.0f}",
        "RAY_grpc_client_keepalive_timeout_ms": f"{patience_s * 1000:.0f}",
        "RAY_actor_scheduling_queue_max_reorder_wait_seconds": f"{patience_s:.0f}",
    }


def _set_authentication(env: dict[str, str], token_file: Path | None) -> None:
    """Have Ray require the job's token; a Ray that is too old for tokens does not know these variables.

    RAY_AUTH_TOKEN would take precedence over the file. Without Slurm there may be no token: then authentication is off
    unless it was turned on, since a Ray that turns it on creates a token that the other machines do not have.
    """
    if token_file is None:
        env.setdefault("RAY_AUTH_MODE", "disabled")
        return
    env.pop("RAY_AUTH_TOKEN", None)
    env.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token_file))
