"""Paths, loggers and checkpoints of a training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import Finding, error, warning
from verl_node.configuration.rules.batch import BATCH, ROLLOUT

# Paths that verl's workers read, in other folders on other nodes; True if the file must exist.
PATHS = {
    "data.train_files": False,  # prepare checks them on every node
    "data.val_files": False,
    "data.custom_cls.path": True,
    "data.tool_config_path": True,
    "reward.custom_reward_function.path": True,
    "custom_reward_function.path": True,
    f"{ROLLOUT}.multi_turn.tool_config_path": True,
    f"{ROLLOUT}.agent.agent_loop_config_path": True,
    "trainer.default_local_dir": False,
    "trainer.rollout_data_dir": False,
    "trainer.validation_data_dir": False,
}
LOGGER, SAVE, RESUME = "trainer.logger", "trainer.save_freq", "trainer.resume_from_path"


def paths_are_absolute(config: Config, facts: Facts) -> Iterator[Finding]:
    """A URL of another file system (hdfs://) counts as absolute."""
    for key, must_exist in PATHS.items():
        for path in map(str, config.listed(key)):
            if not re.match(r"/|[a-z0-9]+://", path):
                yield error(
                    key, f"{key} has the relative path {path}.", f"Use an absolute path: {key}=/…/{Path(path).name}."
                )
            elif must_exist and path.startswith("/") and not Path(path).is_file():
                yield error(
                    key, f"{key} is {path}, which does not exist on this node.", "Use a path that exists on every node."
                )


def wandb_has_its_key(config: Config, facts: Facts) -> Iterator[Finding]:
    """Without a key wandb prompts on a terminal, which a job does not have, and ends the training."""
    if "wandb" in config.listed(LOGGER) and not facts.wandb:
        yield error(
            LOGGER,
            f"{LOGGER} has wandb, but WANDB_API_KEY is unset and ~/.netrc has no entry for wandb.",
            "Export WANDB_API_KEY, or WANDB_MODE=offline, or leave wandb out.",
        )


def steps(config: Config, facts: Facts) -> int | None:
    """Return the number of steps of the training, None if it is unknown."""
    total = config.get("trainer.total_training_steps")
    if total is not None:
        return config.count("trainer.total_training_steps")
    batch = config.count(BATCH)
    return None if facts.rows is None or not batch else facts.rows // batch * config.count("trainer.total_epochs", 1)


def some_step_is_saved(config: Config, facts: Facts) -> Iterator[Finding]:
    """derived_overrides.checkpoint_notes reports a run without save_freq."""
    every, last = config.count(SAVE), steps(config, facts)
    if last is not None and every > last > 0:
        yield warning(
            SAVE,
            f"{SAVE} is {every} and the training has {last} steps: only the last step is saved.",
            f"Set for example {SAVE}={max(1, last // 4)}.",
        )


def resume_names_a_checkpoint(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl/trainer/ppo/v1/trainer_base.py: _load_checkpoint."""
    mode, path = config.get("trainer.resume_mode"), config.get(RESUME)
    if mode == "resume_path" and "global_step_" not in str(path):
        yield error(
            RESUME, f"trainer.resume_mode is resume_path and {RESUME} is {path}.", f"Set {RESUME}=/…/global_step_<n>."
        )
    if path and mode != "resume_path":
        yield warning(
            RESUME,
            f"{RESUME} is ignored while trainer.resume_mode is {mode}.",
            "Set trainer.resume_mode=resume_path.",
        )
