"""Recipes, and the trainer's command made of a recipe, overrides and the job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from verl_node.errors import BadTrainingConfig
from verl_node.inputs import model as models
from verl_node.settings.overrides import Override, flatten, merge, parse
from verl_node.training import attention, critic_batches, derived_overrides, external_modules, releases


@dataclass(frozen=True)
class Recipe:
    """A file of slurm/recipes/; if its model is null, its module provides the model."""

    name: str
    platform: str
    accelerator: bool
    module: str
    data: list[str]
    model: str | None
    overrides: dict[str, Any]


@dataclass(frozen=True)
class Training:
    """A training's command and inputs.

    ``env`` must be in the environment of every `ray start` as well as of ``argv``: verl's workers inherit the raylet's.
    `verl_node.prepare` makes or downloads ``models`` and ``datasets``, and checks ``files``, the user's own data files.
    ``file_log`` is the file of verl's metrics, None for a release without a file logger (`verl_node.training.metrics`
    then reads the console).
    """

    argv: list[str]
    env: dict[str, str]
    datasets: list[str]
    files: list[str]
    models: list[str]
    file_log: Path | None
    checkpoints: Path
    notes: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    """All overrides, by verl 0.9's keys."""


def load(path: Path) -> Recipe:
    """Read a recipe. Raises BadTrainingConfig for a missing or invalid file."""
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise BadTrainingConfig(
            f"The recipe {path} cannot be read: {error}.", fix="Use a file of slurm/recipes/."
        ) from error
    required = {item.name for item in fields(Recipe)} - {"name"}
    if not isinstance(content, dict) or set(content) != required:
        seen = ", ".join(sorted(content)) if isinstance(content, dict) else type(content).__name__
        raise BadTrainingConfig(
            f"The recipe {path} has {seen}; a recipe has {', '.join(sorted(required))}.",
            fix="Compare it with slurm/recipes/.",
        )
    data = content.pop("data")
    return Recipe(name=path.stem, data=[data] if isinstance(data, str) else list(data), **content)


def make_training(
    recipe: Recipe,
    overrides: Sequence[str],
    *,
    image_overrides: Sequence[str] = (),
    verl_version: str,
    nodes: int,
    gpus_per_node: int,
    run_dir: Path,
    data_dir: Path,
    checkpoints: Path | None = None,
    model: str | None = None,
    wandb: bool = False,
    expires: float | None = None,
    long: bool = False,
    flash_attn: bool = True,
    given_modules: str = "",
) -> Training:
    """Return the training of ``recipe`` and ``overrides`` on this allocation.

    ``overrides`` win over ``image_overrides``, what the image needs, and these over the recipe; all use verl 0.9's
    keys. ``model`` wins over the recipe's model, an override
    of a model path over both. ``checkpoints`` is their folder, by default in ``run_dir``; ``expires`` is the deadline
    for writing a checkpoint, in epoch seconds. ``wandb`` is whether this account can log to Weights & Biases: without
    it a recipe with wandb runs without that logger, and gets a note. A ``long`` run without checkpoints gets a warning.
    Without ``flash_attn`` a recipe for GPUs gets another attention, and a note; overrides win over that, too.
    ``given_modules`` is the VERL_USE_EXTERNAL_MODULES of the environment, to which modules may be added.

    Raises BadTrainingConfig if an override contradicts the allocation, is a relative path, or does not exist in this
    verl.
    """
    release = releases.load(verl_version)
    given = merge(parse(text) for text in overrides)
    derived_overrides.check_allocation(given, nodes, gpus_per_node)
    from_recipe, from_image = merge(flatten(recipe.overrides)), merge(parse(text) for text in image_overrides)
    models_by_key = {
        key: derived_overrides.model(given.pop(key, None), model or recipe.model)
        for key in derived_overrides.MODEL_KEYS
    }
    chosen = {key: name for key, name in models_by_key.items() if name is not None}
    file_log = run_dir / "verl.jsonl" if release.file_logger else None
    from_job = derived_overrides.job_overrides(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        run_dir=run_dir,
        checkpoints=checkpoints or run_dir / "checkpoints",
        data_dir=data_dir,
        data=recipe.data,
        models={key: models.path(name, data_dir) for key, name in chosen.items()},
    )
    requested = given.get(derived_overrides.LOGGER_KEY)
    without = () if wandb or requested else ("wandb",)
    logger = derived_overrides.logger(
        requested or from_recipe.get(derived_overrides.LOGGER_KEY), file_log=release.file_logger, without=without
    )
    without_flash_attn = recipe.accelerator and not flash_attn
    of_environment = attention.overrides_without_flash_attn(release.series, chosen) if without_flash_attn else []
    layers = (from_recipe.values(), of_environment, from_image.values(), from_job, given.values())
    merged = merge(*layers, [logger])
    derived_overrides.check_paths(merged)
    series = releases.series_of(verl_version)
    polling = list(derived_overrides.polling_overrides(series, recipe.module, merged))
    of_critic = merge(critic_batches.overrides(recipe.module, merged)) if release.critic_ignores_batches else {}
    worker_env = derived_overrides.worker_environment(file_log, expires)
    modules = derived_overrides.worker_modules(series, merged, without_flash_attn=bool(of_environment))
    worker_env |= external_modules.with_modules(given_modules, modules)
    translated = [
        *_translated(release, [*merged.values(), *of_critic.values(), *polling]),
        *(derived_overrides.runtime_env_overrides(worker_env) if release.runtime_env else ()),
    ]
    return Training(
        argv=["python3", "-m", recipe.module, *map(str, merge(translated).values())],
        env={**worker_env, "HYDRA_FULL_ERROR": "1", "PYTHONUNBUFFERED": "1"},
        datasets=list(recipe.data) if any(key not in given for key in derived_overrides.FILE_KEYS) else [],
        files=[
            path
            for key in derived_overrides.FILE_KEYS
            if key in given
            for path in derived_overrides.as_list(given[key])
        ],
        models=list(dict.fromkeys(chosen.values())),
        file_log=file_log,
        checkpoints=Path(str(merged[derived_overrides.CHECKPOINTS_KEY].plain())),
        notes=[
            *_image_notes(from_image, given),
            *_notes(from_recipe, release, without),
            *([attention.NOTE] if of_environment else []),
            *([critic_batches.note(release.series, of_critic)] if of_critic else []),
            *([derived_overrides.POLLING_NOTE] if polling else []),
            *([external_modules.ROTARY_NOTE] if external_modules.ROTARY_FREQUENCIES in modules else []),
            *derived_overrides.checkpoint_notes(merged, long=long),
        ],
        keys={key: str(override.plain()) for key, override in merged.items()},
    )


def _translated(release: releases.Release, overrides: Iterable[Override]) -> list[Override]:
    """Return the overrides with this release's keys. Raises BadTrainingConfig."""
    translated, errors = [], []
    for override in overrides:
        try:
            translated.append(release.translate(override))
        except BadTrainingConfig as error:
            errors.append(error)
    if errors:
        raise BadTrainingConfig(
            " ".join(error.cause for error in errors), fix=" ".join(dict.fromkeys(error.fix for error in errors))
        )
    return translated


def _image_notes(from_image: Mapping[str, Override], given: Mapping[str, Override]) -> list[str]:
    """Return a sentence about the settings that come from the image."""
    used = [str(override) for key, override in from_image.items() if key not in given]
    return [f"The image sets {', '.join(used)}; an override of the job wins."] if used else []


def _notes(from_recipe: Mapping[str, Override], release: releases.Release, without: tuple[str, ...]) -> list[str]:
    """Return a sentence for each deviation from the recipe."""
    notes = []
    logger = from_recipe.get(derived_overrides.LOGGER_KEY)
    if logger and set(without) & set(derived_overrides.as_list(logger)):
        notes.append(
            "wandb is left out of trainer.logger: WANDB_API_KEY is unset and ~/.netrc has no entry for wandb; "
            "export WANDB_API_KEY, or WANDB_MODE=offline."
        )
    if not release.file_logger:
        notes.append(f"verl {release.series} has no file logger: metrics are read from its console lines.")
    return notes


def prepare_argv(training: Training, data_dir: Path, source: Path | None) -> list[str]:
    """Return the command that prepares the inputs of ``training`` on a node."""
    argv = ["python3", "-m", "verl_node.prepare", "--data-dir", str(data_dir)]
    argv += ["--source", str(source)] if source else []
    for flag, names in (("--dataset", training.datasets), ("--file", training.files), ("--model", training.models)):
        argv += [argument for name in names for argument in (flag, name)]
    return argv
