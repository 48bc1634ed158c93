"""Checks a training configuration: at once as far as possible, and again when model and data are on the node."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from verl_node.configuration import rules
from verl_node.configuration.facts import Config, Facts, count_rows, model_folder, read_model
from verl_node.configuration.finding import Finding, errors, note, warning
from verl_node.configuration.rules import enum_values
from verl_node.reporting import files

_ROLES = "actor_rollout_ref"  # the key of verl's RL trainers; configurations of other trainers are only composed


@dataclass(frozen=True)
class Inspection:
    """Findings, the resolved configuration (None if composing failed), and verl's validation."""

    findings: list[Finding] = field(default_factory=list)
    config: Config | None = None
    verl_findings: Callable[[], list[Finding]] = list
    """Imports verl, which takes seconds; skipped after errors."""


def check_command(argv: Sequence[str], choices: Mapping[str, Sequence[str]], facts: Facts) -> Inspection:
    """Check the training that ``argv`` (python3 -m MODULE OVERRIDE…) starts; ``choices`` are its release's."""
    from verl_node.configuration import composition, verl_validation  # late: Hydra, which prepare does not need

    _, _, module, *overrides = argv
    source = composition.source(module)
    if source is None:
        return Inspection([note("", f"{module} has no Hydra configuration in this image: it is not checked.")])
    composed = composition.compose(source, overrides)
    if composed.config is None:
        return Inspection(composed.findings)
    values, unresolved = composition.resolve(composed.config)
    config = Config(values)
    found = [*composed.findings, *unresolved]
    if unresolved or not config.has(_ROLES):
        return Inspection(found, None if unresolved else config)
    found += enum_values.rollout_is_chosen(config, choices)
    found += enum_values.unknown_values(config, choices, verl_validation.registered_values)
    found += enum_values.image_has_the_engine(config, facts)
    found += rules.apply(config, facts)
    if any(errors(found)):
        return Inspection(found, config)
    keys = list(composition.keys(composed.config))
    return Inspection(found, config, partial(verl_validation.validate, composed.config, config, keys))


def check_inputs(config: Config, facts: Facts) -> list[Finding]:
    """Check the configuration against the model and the data, as far as they are on this node."""
    if not config.has(_ROLES):
        return []
    name = str(config.get(f"{_ROLES}.model.path"))
    folder = model_folder(name)
    train_files = config.listed("data.train_files")
    facts = replace(facts, rows=count_rows(train_files) if train_files else None)
    if folder is None:
        absent = warning(
            f"{_ROLES}.model.path",
            f"The model {name} is not on this node: lengths, heads and memory are not checked against it.",
            "Download its config.json into HF_HOME, or set VERLJOB_MODEL to a folder.",
        )
        return [absent, *rules.apply(config, facts, rules.LATER_RULES)]
    try:
        facts = replace(facts, model=read_model(folder))
    except (OSError, ValueError, KeyError, ImportError, AttributeError) as error:
        cause = f"transformers cannot build {name}: {' '.join(str(error).split())}."
        return [warning(f"{_ROLES}.model.path", cause, "Check its config.json.")]
    return rules.apply(config, facts, rules.LATER_RULES)


def save(path: Path, config: Config, facts: Facts) -> None:
    """Save configuration and facts for `check_inputs` in another process."""
    known: dict[str, Any] = {"gpu_memory": facts.gpu_memory, "node_memory": facts.node_memory, "wandb": facts.wandb}
    files.replace(path, json.dumps({"facts": known, "configuration": config.values}, default=str))


def saved(path: Path) -> tuple[Config, Facts]:
    """Return the content of a file from `save`. Raises OSError, ValueError."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return Config(content["configuration"]), Facts(**content["facts"])
