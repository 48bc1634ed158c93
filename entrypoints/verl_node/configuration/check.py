"""Checks a training configuration: what can be seen at once, and what needs the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from verl_node.configuration import composition, model, rules, verl_validation
from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import Finding, errors, note, warning
from verl_node.configuration.rules import enum_values
from verl_node.reporting import files

_ROLES = "actor_rollout_ref"  # of verl's reinforcement learning; other trainers are composed only


@dataclass(frozen=True)
class Inspection:
    """What was found, the resolved configuration, None where it could not be made, and what verl says of it itself."""

    findings: list[Finding] = field(default_factory=list)
    config: Config | None = None
    of_verl: Callable[[], list[Finding]] = list
    """Takes seconds of importing verl; where there are errors it would mostly say the same in other words."""


def of_command(argv: Sequence[str], known: Mapping[str, Sequence[str]], facts: Facts) -> Inspection:
    """Look at the training that ``argv`` (python3 -m MODULE OVERRIDE…) starts; ``known`` are its release's choices."""
    _, _, module, *words = argv
    source = composition.source(module)
    if source is None:
        return Inspection([note("", f"{module} has no configuration of Hydra's here: it is not looked at.")])
    made = composition.compose(source, words)
    if made.config is None:
        return Inspection(made.findings)
    values, unresolved = composition.resolved(made.config)
    config = Config(values)
    found = [*made.findings, *unresolved]
    if unresolved or not config.has(_ROLES):
        return Inspection(found, None if unresolved else config)
    found += enum_values.a_rollout_is_chosen(config, known)
    found += enum_values.unknown_values(config, known, verl_validation.registered)
    found += enum_values.the_image_has_the_engine(config, facts)
    found += rules.judge(config, facts)
    if any(errors(found)):
        return Inspection(found, config)
    return Inspection(
        found, config, partial(verl_validation.findings, made.config, config, list(composition.keys(made.config)))
    )


def later(config: Config, facts: Facts) -> list[Finding]:
    """Look at it again with the model and the data, as far as they are here."""
    if not config.has(_ROLES):
        return []
    name = str(config.get(f"{_ROLES}.model.path"))
    folder = model.found(name)
    files = config.get("data.train_files")
    facts = replace(facts, rows=model.rows(files if isinstance(files, list) else [files]) if files else None)
    if folder is None:
        unseen = warning(
            f"{_ROLES}.model.path",
            f"The model {name} is not here: lengths, heads and memory were not held against it.",
            "Fetch its config.json into HF_HOME, or give a folder: VERLJOB_MODEL.",
        )
        return [unseen, *rules.judge(config, facts, rules.LATER_RULES)]
    try:
        facts = replace(facts, model=model.shape(folder))
    except (OSError, ValueError, KeyError, ImportError, AttributeError) as error:
        words = " ".join(str(error).split())
        return [
            warning(f"{_ROLES}.model.path", f"transformers cannot build {name}: {words}.", "Look at its config.json.")
        ]
    return rules.judge(config, facts, rules.LATER_RULES)


def save(path: Path, config: Config, facts: Facts) -> None:
    """Leave for `later`, in another process, what this one knows."""
    known: dict[str, Any] = {"gpu_memory": facts.gpu_memory, "node_memory": facts.node_memory, "wandb": facts.wandb}
    files.replace(path, json.dumps({"facts": known, "configuration": config.values}, default=str))


def saved(path: Path) -> tuple[Config, Facts]:
    """Return what `save` left. Raises OSError, ValueError."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return Config(content["configuration"]), Facts(**content["facts"])
