"""Modules of verl_node that verl imports in each of its processes: VERL_USE_EXTERNAL_MODULES, from verl 0.6 on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

NAME = "VERL_USE_EXTERNAL_MODULES"
CRITIC_ATTENTION = "verl_node.training.critic_attention"
IPC_SOCKETS = "verl_node.training.ipc_sockets"
ROTARY_FREQUENCIES = "verl_node.training.rotary_frequencies"
ROTARY_NOTE = (
    "The frequencies of rotary position embeddings stay in float32, as in the rollout's engine; verl would convert "
    "them with the model's weights."
)
FIRST_RELEASE = (0, 6)
_NODES_TMP = "/tmp"  # noqa: S108  verl's own choice


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable for a job whose temporary folder is not /tmp, as without a container; else none."""
    if environ.get("TMPDIR", _NODES_TMP).rstrip("/") == _NODES_TMP:
        return {}
    return with_modules(environ.get(NAME, ""), [IPC_SOCKETS])


def with_modules(given: str, modules: Sequence[str]) -> dict[str, str]:
    """Return the variable with ``modules`` after those of a user or an image, ``given``; nothing without modules."""
    return {NAME: ",".join(filter(None, (given, *modules)))} if modules else {}
