"""Recipes, and the command of verl's trainer that a recipe and overrides give in a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from verl_node.errors import BadTrainingConfig
from verl_node.inputs import model as models
from verl_node.settings.overrides import Override, flatten, merge, parse
from verl_node.training import derived_overrides, releases


@dataclass(frozen=True)
class Recipe:
    """One file of slurm/recipes/; one without a model (null) trains what its own module knows of."""

    name: str
    platform: str
    accelerator: bool
    module: str
    data: list[str]
    model: str | None
    overrides: dict[str, Any]


@dataclass(frozen=True)
class Training:
    """What to run and what it needs.

    ``env`` must be in the environment of every `ray start` as well as of ``argv``: verl's workers get the raylet's.
    ``models`` are what `verl_node.prepare` makes or fetches, ``datasets`` the data sets to make, ``files`` the user's
    own data files that must be there. ``file_log`` is where verl writes its metrics, None for a release that has no
    file logger (`verl_node.training.metrics` reads its console).
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
    """What was said of verl's keys, by verl 0.9's names."""


def load(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
        BadTrainingConfig: The file is missing, is no YAML, or has a field too many or too few.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise BadTrainingConfig(
            f"The recipe {path} cannot be read: {error}.", fix="Name a file of slurm/recipes/."
        ) from error
    wanted = {item.name for item in fields(Recipe)} - {"name"}
    if not isinstance(content, dict) or set(content) != wanted:
        seen = ", ".join(sorted(content)) if isinstance(content, dict) else type(content).__name__
        raise BadTrainingConfig(
            f"The recipe {path} has {seen}; a recipe has {', '.join(sorted(wanted))}.",
            fix="Compare it with slurm/recipes/.",
        )
    data = content.pop("data")
    return Recipe(name=path.stem, data=[data] if isinstance(data, str) else list(data), **content)


def training(
    recipe: Recipe,
    overrides: Sequence[str],
    *,
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
) -> Training:
    """The training that ``recipe`` and ``overrides`` mean on this allocation.

    ``overrides`` win over the recipe, which names verl 0.9's keys; ``model`` wins over the recipe's model, an override
    of a model path over both. ``checkpoints`` is where they are written, by default in ``run_dir``; ``expires`` is when
    a checkpoint has to be written, in epoch seconds. ``wandb`` says whether this account can log to Weights & Biases: a
    recipe that asks for it runs without it otherwise, and says so in the notes. A ``long`` run is warned when it writes
    no checkpoint.

    Raises:
        BadTrainingConfig: An override contradicts the allocation, is a relative path, or cannot be said to this verl.
    """
    release = releases.load(verl_version)
    given = merge(parse(text) for text in overrides)
    derived_overrides.check_allocation(given, nodes, gpus_per_node)
    of_recipe = merge(flatten(recipe.overrides))
    asked_models = {
        key: derived_overrides.model(given.pop(key, None), model or recipe.model)
        for key in derived_overrides.MODEL_KEYS
    }
    chosen = {key: name for key, name in asked_models.items() if name is not None}
    file_log = run_dir / "verl.jsonl" if release.file_logger else None
    of_job = derived_overrides.of_job(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        run_dir=run_dir,
        checkpoints=checkpoints or run_dir / "checkpoints",
        data_dir=data_dir,
        data=recipe.data,
        models={key: models.path(name, data_dir) for key, name in chosen.items()},
    )
    asked = given.get(derived_overrides.LOGGER_KEY)
    without = () if wandb or asked else ("wandb",)
    logger = derived_overrides.logger(
        asked or of_recipe.get(derived_overrides.LOGGER_KEY), file_log=release.file_logger, without=without
    )
    merged = merge(of_recipe.values(), of_job, given.values(), [logger])
    derived_overrides.check_paths(merged)
    worker_env = derived_overrides.worker_environment(file_log, expires)
    said = [
        *_translated(release, merged.values()),
        *(derived_overrides.by_ray(worker_env) if release.runtime_env else ()),
    ]
    return Training(
        argv=["python3", "-m", recipe.module, *map(str, merge(said).values())],
        env={**worker_env, "HYDRA_FULL_ERROR": "1", "PYTHONUNBUFFERED": "1"},
        datasets=list(recipe.data) if any(key not in given for key in derived_overrides.FILE_KEYS) else [],
        files=[
            path for key in derived_overrides.FILE_KEYS if key in given for path in derived_overrides.listed(given[key])
        ],
        models=list(dict.fromkeys(chosen.values())),
        file_log=file_log,
        checkpoints=Path(str(merged[derived_overrides.CHECKPOINTS_KEY].plain())),
        notes=[*_notes(of_recipe, release, without), *derived_overrides.saving(merged, long=long)],
        keys={key: str(override.plain()) for key, override in merged.items()},
    )


def _translated(release: releases.Release, overrides: Iterable[Override]) -> list[Override]:
    """The overrides by this release's names. Raises BadTrainingConfig with all that it has no name for."""
    said, refused = [], []
    for override in overrides:
        try:
            said.append(release.translate(override))
        except BadTrainingConfig as error:
            refused.append(error)
    if refused:
        raise BadTrainingConfig(
            " ".join(error.cause for error in refused), fix=" ".join(dict.fromkeys(error.fix for error in refused))
        )
    return said


def _notes(of_recipe: dict[str, Override], release: releases.Release, without: tuple[str, ...]) -> list[str]:
    """What the user may not expect of this run, a sentence each."""
    notes = []
    if derived_overrides.LOGGER_KEY in of_recipe and set(without) & set(
        derived_overrides.listed(of_recipe[derived_overrides.LOGGER_KEY])
    ):
        notes.append(
            "wandb is left out of trainer.logger: there is neither WANDB_API_KEY nor an entry for it in ~/.netrc; "
            "export one, or WANDB_MODE=offline."
        )
    if not release.file_logger:
        notes.append(f"verl {release.series} has no file logger: metrics are read from its console lines.")
    return notes


def preparation(training: Training, data_dir: Path, source: Path | None) -> list[str]:
    """The command that makes or fetches what ``training`` needs on the node that runs it (see `verl_node.prepare`)."""
    argv = ["python3", "-m", "verl_node.prepare", "--data-dir", str(data_dir)]
    argv += ["--source", str(source)] if source else []
    for flag, names in (("--dataset", training.datasets), ("--file", training.files), ("--model", training.models)):
        argv += [word for name in names for word in (flag, name)]
    return argv
