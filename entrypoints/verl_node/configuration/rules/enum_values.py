"""Settings with a fixed set of values: those of the verl release, and those registered in the image."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence

from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import Finding, error, warning
from verl_node.configuration.rules.batch import ROLLOUT

ENGINES = ("vllm", "sglang", "tensorrt_llm")
MODULES = {"trtllm": "tensorrt_llm"}  # rollouts with another name than their module


def installed_engines() -> tuple[str, ...]:
    """Return the rollout engines of this image."""
    return tuple(name for name in ENGINES if importlib.util.find_spec(name) is not None)


def unknown_values(
    config: Config, choices: Mapping[str, Sequence[str]], registered: Callable[[str], Sequence[str]]
) -> Iterator[Finding]:
    """Yield a finding for each value that neither the release nor the image supports."""
    make = warning if config.get("actor_rollout_ref.model.external_lib") else error
    for key, names in choices.items():
        value = config.get(key)
        values = value if isinstance(value, list) else [value]
        unlisted = [item for item in values if item is not None and str(item) not in names]
        known = [*names, *(name for name in registered(key) if name not in names)] if unlisted else names
        for item in unlisted:
            if str(item) in known:
                continue
            similar = difflib.get_close_matches(str(item), known, 1)
            fix = f"Set {key}={similar[0]}." if similar else f"Set {key} to one of them."
            yield make(key, f"{key} is {item}; verl supports {', '.join(known)}.", fix)


def rollout_is_chosen(config: Config, choices: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """verl 0.9 has no default for it."""
    key = f"{ROLLOUT}.name"
    if config.has(key) and config.get(key) is None:
        yield error(key, f"{key} is not set.", f"Set {key} to one of {', '.join(choices.get(key, ()))}.")


def image_has_the_engine(config: Config, facts: Facts) -> Iterator[Finding]:
    """Without the engine Ray's workers fail late with ModuleNotFoundError."""
    name = str(config.get(f"{ROLLOUT}.name"))
    module = MODULES.get(name, name)
    if facts.engines is not None and module in ENGINES and module not in facts.engines:
        yield warning(
            f"{ROLLOUT}.name",
            f"{ROLLOUT}.name is {name}, and this image has no {module}.",
            "Use an image that has it (docs/images.md), or another rollout.",
        )
