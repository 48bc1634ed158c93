"""Paths, loggers and checkpoints of a training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import Finding, error, warning
from verl_node.configuration.rules.batch import BATCH, ROLLOUT

# Read by verl in its workers, which run in folders of their own on other nodes; True where the file must be there.
PATHS = {
    "data.train_files": False,  # prepare looks for them on every node
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
    """A file of another file system (hdfs://) is one, too."""
    for key, must_be_there in PATHS.items():
        value = config.get(key)
        for path in map(str, value if isinstance(value, list) else [value] if value else []):
            if not re.match(r"/|[a-z0-9]+://", path):
                yield error(
                    key, f"{key} names the relative path {path}.", f"Give an absolute path: {key}=/…/{Path(path).name}."
                )
            elif must_be_there and path.startswith("/") and not Path(path).is_file():
                yield error(
                    key, f"{key} names {path}, and there is no such file here.", "Give a path that every node sees."
                )


def wandb_has_its_key(config: Config, facts: Facts) -> Iterator[Finding]:
    """wandb would ask for it on a terminal that a job does not have, and end the training."""
    value = config.get(LOGGER)
    if "wandb" in (value if isinstance(value, list) else [value]) and not facts.wandb:
        yield error(
            LOGGER,
            f"{LOGGER} has wandb, and there is neither WANDB_API_KEY nor an entry for it in ~/.netrc.",
            "Export WANDB_API_KEY, or WANDB_MODE=offline, or leave wandb out.",
        )


def steps(config: Config, facts: Facts) -> int | None:
    """How many steps the training has, None where nobody knows."""
    total = config.get("trainer.total_training_steps")
    if total is not None:
        return config.count("trainer.total_training_steps")
    batch = config.count(BATCH)
    return None if facts.rows is None or not batch else facts.rows // batch * config.count("trainer.total_epochs", 1)


def some_step_is_saved(config: Config, facts: Facts) -> Iterator[Finding]:
    """A run without any checkpoint is told by keys.saving; this is one that was meant to have some."""
    every, last = config.count(SAVE), steps(config, facts)
    if last is not None and every > last > 0:
        yield warning(
            SAVE,
            f"{SAVE} is {every} and the training has {last} steps: only the last one is saved, and nothing before it.",
            f"Say {SAVE}={max(1, last // 4)} or the like.",
        )


def a_resume_names_a_checkpoint(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl/trainer/ppo/v1/trainer_base.py: _load_checkpoint."""
    mode, path = config.get("trainer.resume_mode"), config.get(RESUME)
    if mode == "resume_path" and "global_step_" not in str(path):
        yield error(
            RESUME, f"trainer.resume_mode is resume_path and {RESUME} is {path}.", f"Say {RESUME}=/…/global_step_<n>."
        )
    if path and mode != "resume_path":
        yield warning(
            RESUME,
            f"{RESUME} is not looked at while trainer.resume_mode is {mode}.",
            "Say trainer.resume_mode=resume_path.",
        )
