"""Settings with a fixed set of values, by verl release plus what the image registers."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence

from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import Finding, error, warning
from verl_node.configuration.rules.batch import ROLLOUT

ENGINES = ("vllm", "sglang", "tensorrt_llm")
MODULES = {"trtllm": "tensorrt_llm"}  # where a rollout's name is not that of its module


def installed_engines() -> tuple[str, ...]:
    """The rollout engines of this image."""
    return tuple(name for name in ENGINES if importlib.util.find_spec(name) is not None)


def unknown_values(
    config: Config, choices: Mapping[str, Sequence[str]], registered: Callable[[str], Sequence[str]]
) -> Iterator[Finding]:
    """Every value that its release does not know, with those that it does; a module of the user's own may know more."""
    make = warning if config.get("actor_rollout_ref.model.external_lib") else error
    for key, names in choices.items():
        value = config.get(key)
        strange = [
            one for one in (value if isinstance(value, list) else [value]) if one is not None and str(one) not in names
        ]
        known = [*names, *(name for name in registered(key) if name not in names)] if strange else names
        for one in strange:
            if str(one) in known:
                continue
            meant = difflib.get_close_matches(str(one), known, 1)
            said = f"{key} is {one}, and verl knows {', '.join(known)}."
            yield make(key, said, f"Say {key}={meant[0] if meant else 'one of them'}.")


def a_rollout_is_chosen(config: Config, choices: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """verl 0.9 has no default for it."""
    key = f"{ROLLOUT}.name"
    if config.has(key) and config.get(key) is None:
        yield error(key, f"{key} is not set.", f"Say {key}= one of {', '.join(choices.get(key, ()))}.")


def the_image_has_the_engine(config: Config, facts: Facts) -> Iterator[Finding]:
    """In an image without it Ray's workers would end with ModuleNotFoundError, after all others have started."""
    name = str(config.get(f"{ROLLOUT}.name"))
    module = MODULES.get(name, name)
    if facts.engines is not None and module in ENGINES and module not in facts.engines:
        yield warning(
            f"{ROLLOUT}.name",
            f"{ROLLOUT}.name is {name}, and this image has no {module}.",
            "Use an image that has it (docs/images.md), or another rollout.",
        )
