"""Overrides that the job sets itself: allocation, paths, model, loggers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from verl_node.errors import BadTrainingConfig
from verl_node.settings.overrides import Override, literal, quoted

MODEL_KEYS = ("actor_rollout_ref.model.path", "critic.model.path")
FILE_KEYS = ("data.train_files", "data.val_files")
CHECKPOINTS_KEY = "trainer.default_local_dir"
LOGGER_KEY = "trainer.logger"
SAVE_KEY = "trainer.save_freq"
EXPIRES = "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP"  # verl/utils/checkpoint/checkpoint_manager.py


def of_job(
    *,
    nodes: int,
    gpus_per_node: int,
    run_dir: Path,
    checkpoints: Path,
    data_dir: Path,
    data: list[str],
    models: Mapping[str, str],
) -> Iterator[Override]:
    """What is set from the job; an override may say the same of the allocation, and otherwise of paths."""
    yield Override("", "trainer.nnodes", str(nodes))
    yield Override("", "trainer.n_gpus_per_node", str(gpus_per_node))
    yield Override("", CHECKPOINTS_KEY, literal(str(checkpoints)))
    yield Override("", "hydra.run.dir", literal(str(run_dir / "hydra")))  # else outputs/<date> in the submit folder
    for key, split in zip(FILE_KEYS, ("train", "test")) if data else ():  # a recipe without data names its own files
        files = [str(data_dir / name / f"{split}.parquet") for name in data]
        yield Override("", key, literal(files if len(files) > 1 else files[0]))
    for key, path in models.items():
        yield Override("", key, literal(path))


def saving(merged: Mapping[str, Override], *, long: bool) -> Iterator[str]:
    """What to know of a run that writes no checkpoint."""
    if SAVE_KEY in merged and merged[SAVE_KEY].plain() not in (-1, 0, None):
        return
    lost = "no checkpoint will be written and the run cannot be resumed"
    if long:
        yield f"warning: {SAVE_KEY} is -1 and the time limit is over a day: {lost}; say {SAVE_KEY}=20 or the like."
    else:
        yield f"{SAVE_KEY} is -1: {lost}."


def worker_environment(file_log: Path | None, expires: float | None) -> dict[str, str]:
    """Variables that verl reads in its workers, on whatever node they run.

    ``expires`` is when the capacity ends, in epoch seconds: some trainers save shortly before (docs/resume.md).
    """
    env = {"HF_HUB_OFFLINE": "1"}  # everything was fetched and checked by now
    if file_log is not None:
        env["VERL_FILE_LOGGER_PATH"] = str(file_log)
    if expires is not None:
        env[EXPIRES] = str(expires)
    return env


def by_ray(env: Mapping[str, str]) -> Iterator[Override]:
    """``env`` for workers whose raylet started before the training was known; verl lets these win over its own."""
    for name, value in env.items():
        yield Override("+", f"ray_kwargs.ray_init.runtime_env.env_vars.{name}", quoted(value))


def model(override: Override | None, default: str | None) -> str | None:
    """The model that an override of a model path means, else ``default``.

    Raises:
        BadTrainingConfig: It is a relative path.
    """
    name = default if override is None else str(override.plain())
    if name and name.startswith((".", "~")):
        raise BadTrainingConfig(f"The model {name} is a relative path.", fix="Give an absolute path or a hub name.")
    return name


def logger(asked: Override | None, *, file_log: bool, without: tuple[str, ...]) -> Override:
    """Console and, where the release has it, file always; then what was asked for, but for ``without``."""
    wanted = [name for name in listed(asked) if name not in ("console", "file", *without)] if asked else []
    return Override("", LOGGER_KEY, literal(["console", *(["file"] if file_log else []), *wanted]))


def check_allocation(given: Mapping[str, Override], nodes: int, gpus_per_node: int) -> None:
    """Hold that no override contradicts the allocation.

    Raises:
        BadTrainingConfig: One does.
    """
    wanted = {"trainer.nnodes": (nodes, "--nodes"), "trainer.n_gpus_per_node": (gpus_per_node, "--gpus-per-node")}
    for key, (value, flag) in wanted.items():
        if key in given and given[key].plain() != value:
            raise BadTrainingConfig(
                f"{given[key]} contradicts the allocation, which has {value}.",
                fix=f"Leave {key} out (it is set from the allocation) or ask Slurm for it with {flag}.",
            )


def check_paths(merged: Mapping[str, Override]) -> None:
    """Hold that data and checkpoints have absolute paths: workers run in other folders on other nodes.

    Raises:
        BadTrainingConfig: One is relative.
    """
    for key in merged.keys() & {*FILE_KEYS, CHECKPOINTS_KEY}:
        for path in listed(merged[key]):
            if not re.match(r"/|[a-z0-9]+://", path):
                raise BadTrainingConfig(f"{key} names the relative path {path}.", fix="Give an absolute path.")


def listed(override: Override) -> list[str]:
    """The value as a list, also where it is one word, or nothing (null, or a key that is removed)."""
    value = override.plain()
    if value is None:
        return []
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]
