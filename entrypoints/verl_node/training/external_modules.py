"""Modules of verl_node that verl imports in each of its processes: VERL_USE_EXTERNAL_MODULES, from verl 0.6 on."""

from __future__ import annotations

from collections.abc import Mapping

NAME = "VERL_USE_EXTERNAL_MODULES"
CRITIC_ATTENTION = "verl_node.training.critic_attention"
IPC_SOCKETS = "verl_node.training.ipc_sockets"
_NODES_TMP = "/tmp"  # noqa: S108  verl's own choice


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable for a job whose temporary folder is not /tmp, as without a container; else none."""
    if environ.get("TMPDIR", _NODES_TMP).rstrip("/") == _NODES_TMP:
        return {}
    return {NAME: added(environ.get(NAME, ""), IPC_SOCKETS)}


def added(modules: str, module: str) -> str:
    """Return the comma-separated ``modules`` of a user or an image with one more."""
    return ",".join(filter(None, (modules, module)))
