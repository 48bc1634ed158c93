"""Weights & Biases in a job: its folder, and offline where its server does not answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from verl_node.inputs import reachability
from verl_node.training import derived_overrides
from verl_node.training.recipe import Training

_SERVER = "https://api.wandb.ai"


async def environment(
    training: Training, run_dir: Path, env: Mapping[str, str], note: Callable[[str], None]
) -> dict[str, str]:
    """Return WANDB_DIR and WANDB_MODE for a training that logs to wandb; what ``env`` has stays.

    wandb prompts or retries for minutes on a node without internet. Offline it writes to ``run_dir``, and `wandb sync`
    uploads it later from another machine.
    """
    if "'wandb'" not in training.keys.get(derived_overrides.LOGGER_KEY, ""):
        return {}
    variables = {"WANDB_DIR": str(run_dir)} if not env.get("WANDB_DIR") else {}
    if env.get("WANDB_MODE"):
        return variables
    reason = await reachability.check(env.get("WANDB_BASE_URL") or _SERVER, env)
    if not reason:
        return variables
    folder = variables.get("WANDB_DIR") or env["WANDB_DIR"]
    note(
        f"wandb is offline, since {reason}: its files are in {folder}/wandb. "
        f"Later, on a machine that reaches it: wandb sync {folder}/wandb/offline-run-*"
    )
    return {**variables, "WANDB_MODE": "offline"}
