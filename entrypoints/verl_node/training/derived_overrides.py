"""Overrides that the job sets itself: allocation, paths, model, loggers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from verl_node.errors import BadTrainingConfig
from verl_node.settings.overrides import Override, literal, quoted
from verl_node.training import external_modules
from verl_node.training.releases import Series

MODEL_KEYS = ("actor_rollout_ref.model.path", "critic.model.path")
FILE_KEYS = ("data.train_files", "data.val_files")
CHECKPOINTS_KEY = "trainer.default_local_dir"
LOGGER_KEY = "trainer.logger"
SAVE_KEY = "trainer.save_freq"
TRAINER = "verl.trainer.main_ppo"
POLL_S = 0.25
POLLING_NOTE = (
    f"The trainer polls for a step's answers every {POLL_S} s; verl polls every 2 s, which costs 1 s of a step."
)
_SAMPLER = "trainer.v1.sampler.custom_sampler"
_TYPE_KEY, _FULL_PRECISION = ".model_dtype", ("fp32", "float32", "32")
EXPIRES = "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP"  # verl/utils/checkpoint/checkpoint_manager.py


def job_overrides(
    *,
    nodes: int,
    gpus_per_node: int,
    run_dir: Path,
    checkpoints: Path,
    data_dir: Path,
    data: list[str],
    models: Mapping[str, str],
) -> Iterator[Override]:
    """Yield the overrides that the job determines."""
    yield Override("", "trainer.nnodes", str(nodes))
    yield Override("", "trainer.n_gpus_per_node", str(gpus_per_node))
    yield Override("", CHECKPOINTS_KEY, literal(str(checkpoints)))
    yield Override("", "hydra.run.dir", literal(str(run_dir / "hydra")))  # else outputs/<date> in the submit folder
    for key, split in zip(FILE_KEYS, ("train", "test")) if data else ():  # a recipe without data sets names files
        files = [str(data_dir / name / f"{split}.parquet") for name in data]
        yield Override("", key, literal(files if len(files) > 1 else files[0]))
    for key, path in models.items():
        yield Override("", key, literal(path))


def checkpoint_notes(merged: Mapping[str, Override], *, long: bool) -> Iterator[str]:
    """Yield a note for a run that writes no checkpoint, a warning for a ``long`` one."""
    if SAVE_KEY in merged and merged[SAVE_KEY].plain() not in (-1, 0, None):
        return
    result = "no checkpoint will be written and the run cannot be resumed"
    if long:
        yield f"warning: {SAVE_KEY} is -1 and the time limit is over a day: {result}; set for example {SAVE_KEY}=20."
    else:
        yield f"{SAVE_KEY} is -1: {result}."


def worker_environment(file_log: Path | None, expires: float | None) -> dict[str, str]:
    """Return the variables that verl reads in its workers on all nodes.

    ``expires`` is the end of the capacity in epoch seconds: some trainers save shortly before it (docs/resume.md).
    """
    env = {"HF_HUB_OFFLINE": "1"}  # all inputs are downloaded and checked by then
    if file_log is not None:
        env["VERL_FILE_LOGGER_PATH"] = str(file_log)
    if expires is not None:
        env[EXPIRES] = str(expires)
    return env


def worker_modules(series: Series, merged: Mapping[str, Override], *, without_flash_attn: bool) -> list[str]:
    """Return the external modules of a training with these overrides, none for a release without them."""
    if series < external_modules.FIRST_RELEASE:
        return []
    types = {str(override.plain()) for key, override in merged.items() if key.endswith(_TYPE_KEY)}
    rounds = bool(types - {"None", *_FULL_PRECISION})
    modules = [external_modules.CRITIC_ATTENTION] if without_flash_attn else []
    return [*modules, external_modules.ROTARY_FREQUENCIES] if rounds else modules


def polling_overrides(series: Series, module: str, merged: Mapping[str, Override]) -> Iterator[Override]:
    """Yield the overrides by which verl 0.9's synchronous trainer polls more often for answers.

    None if the training has a sampler of its own, or needs what verl does not pass to one: filtered or refilled groups.
    """
    mode = merged.get("trainer.v1.trainer_mode", Override("", "", "sync")).plain()
    own = ("trainer.v1.sampler", "trainer.use_v1", "algorithm.filter_groups")
    if series[:2] != (0, 9) or module != TRAINER or mode != "sync" or any(key.startswith(own) for key in merged):
        return
    yield Override("", f"{_SAMPLER}.path", quoted("pkg://verl_node.training.replay_buffer"))
    yield Override("", f"{_SAMPLER}.name", "ReplayBuffer")


def runtime_env_overrides(env: Mapping[str, str]) -> Iterator[Override]:
    """Yield ``env`` as Ray's runtime_env, for raylets that started before the training was planned.

    verl prefers these values to its own.
    """
    for name, value in env.items():
        yield Override("+", f"ray_kwargs.ray_init.runtime_env.env_vars.{name}", quoted(value))


def model(override: Override | None, default: str | None) -> str | None:
    """Return the model of an override, else ``default``. Raises BadTrainingConfig for a relative path."""
    name = default if override is None else str(override.plain())
    if name and name.startswith((".", "~")):
        raise BadTrainingConfig(f"The model {name} is a relative path.", fix="Use an absolute path or a hub name.")
    return name


def logger(requested: Override | None, *, file_log: bool, without: tuple[str, ...]) -> Override:
    """Return console, file if the release has it, then the requested loggers except ``without``."""
    others = [name for name in as_list(requested) if name not in ("console", "file", *without)] if requested else []
    return Override("", LOGGER_KEY, literal(["console", *(["file"] if file_log else []), *others]))


def check_allocation(given: Mapping[str, Override], nodes: int, gpus_per_node: int) -> None:
    """Raise BadTrainingConfig if an override contradicts the allocation."""
    allocated = {"trainer.nnodes": (nodes, "--nodes"), "trainer.n_gpus_per_node": (gpus_per_node, "--gpus-per-node")}
    for key, (value, flag) in allocated.items():
        if key in given and given[key].plain() != value:
            raise BadTrainingConfig(
                f"{given[key]} contradicts the allocation, which has {value}.",
                fix=f"Leave {key} out (it is set from the allocation) or request it from Slurm with {flag}.",
            )


def check_paths(merged: Mapping[str, Override]) -> None:
    """Raise BadTrainingConfig for a relative path: workers run in other folders."""
    for key in merged.keys() & {*FILE_KEYS, CHECKPOINTS_KEY}:
        for path in as_list(merged[key]):
            if not re.match(r"/|[a-z0-9]+://", path):
                raise BadTrainingConfig(f"{key} has the relative path {path}.", fix="Use an absolute path.")


def as_list(override: Override) -> list[str]:
    """Return the value as a list, also for a single value and for none (null, or a removed key)."""
    value = override.plain()
    if value is None:
        return []
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]
