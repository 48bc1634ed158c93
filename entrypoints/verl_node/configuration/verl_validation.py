"""Runs verl's own validation: its trainer's checks and its dataclasses."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from verl_node.configuration.composition import nearest
from verl_node.configuration.facts import Config
from verl_node.configuration.finding import Finding, error, note, warning

# Keys that verl's workers and trainers convert with omega_conf_to_dataclass; of a reference only these parts.
DATACLASSES = (
    "actor_rollout_ref.actor",
    "actor_rollout_ref.ref.fsdp_config",
    "actor_rollout_ref.ref.megatron",
    "actor_rollout_ref.rollout",
    "actor_rollout_ref.model",
    "critic",
    "algorithm",
)
# Exceptions of verl's checks in all releases; any other exception is our own mistake and is not caught.
REFUSALS = (AssertionError, ValueError, TypeError, KeyError, AttributeError, NotImplementedError, RuntimeError)
_UNKNOWN = re.compile(r"(?P<type>\w+)\.__init__\(\) got an unexpected keyword argument '(?P<name>\w+)'")
_FULL_KEY = re.compile(r"full_key: (?P<key>[\w.]+)")

# The registries of values in this image's verl, by key: module and attribute.
REGISTRIES = {
    "actor_rollout_ref.rollout.name": ("verl.workers.rollout.replica", "RolloutReplicaRegistry._registry"),
    "algorithm.adv_estimator": ("verl.trainer.ppo.core_algos", "ADV_ESTIMATOR_REGISTRY"),
    "actor_rollout_ref.actor.policy_loss.loss_mode": ("verl.trainer.ppo.core_algos", "POLICY_LOSS_REGISTRY"),
    "trainer.logger": ("verl.utils.tracking", "Tracking.supported_backend"),
}


def registered_values(key: str) -> list[str]:
    """Return the values registered for ``key``; importing verl also imports VERL_USE_EXTERNAL_MODULES."""
    module, path = REGISTRIES.get(key, ("", ""))
    if not module or importlib.util.find_spec("verl") is None:
        return []
    found = attrgetter(path)(importlib.import_module(module))
    return [str(getattr(name, "value", name)) for name in found]


def validate(config: Any, resolved: Config, keys: list[str]) -> list[Finding]:
    """Return verl's findings for ``config``, with its values ``resolved`` and the trainer's ``keys``.

    The model's files are not needed: HFModelConfig is kept from loading them, prepare checks them.
    """
    try:
        _skip_model_files()
        validate_config = _trainer_validation()
    except ImportError as missing:
        return [warning("", f"verl cannot be imported: {missing}.", "Check the image; training needs verl, too.")]
    if validate_config is None:
        return [warning("", "This verl has no known validation function.", "Read the output of its trainer.")]
    parts = _dataclass_keys(resolved)
    found = [finding for key in parts for finding in _attempt(partial(_make_dataclass, config, key), key, keys)]
    whole = partial(validate_config, config, resolved.has_a_reference, resolved.trains_a_critic)
    return list(dict.fromkeys([*found, *_attempt(whole, "", keys)]))  # the validation makes the same dataclasses


def _skip_model_files() -> None:
    """Make HFModelConfig store its fields only; verl before 0.5 has no such class."""
    if importlib.util.find_spec("verl.workers.config") is not None:
        model = getattr(importlib.import_module("verl.workers.config"), "HFModelConfig", None)
        if model is not None:
            model.__post_init__ = lambda self: None


def _trainer_validation() -> Callable[[Any, bool, bool], None] | None:
    """Return verl's validation: a function since 0.5, before that a method of the trainer."""
    from verl.utils import config as utilities

    function = getattr(utilities, "validate_config", None)
    if function is not None:
        return lambda config, reference, critic: function(
            config=config, use_reference_policy=reference, use_critic=critic
        )
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    method = getattr(RayPPOTrainer, "_validate_config", None)
    if method is None:
        return None
    return lambda config, reference, critic: method(
        SimpleNamespace(config=config, use_reference_policy=reference, use_critic=critic)
    )


def _dataclass_keys(config: Config) -> list[str]:
    used = {"critic": config.trains_a_critic, "actor_rollout_ref.ref": config.has_a_reference}
    keys = [key for key in DATACLASSES if all(used[role] for role in used if key.startswith(role))]
    return [key for key in keys if config.has(f"{key}._target_")]


def _make_dataclass(config: Any, key: str) -> None:
    from omegaconf import OmegaConf
    from verl.utils.config import omega_conf_to_dataclass

    omega_conf_to_dataclass(OmegaConf.select(config, key))


def _attempt(call: Callable[[], Any], key: str, keys: list[str]) -> Iterator[Finding]:
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except ImportError as missing:
        part = key or "the configuration"
        yield note(key, f"verl's validation of {part} needs {missing.name}, which is not in this image.")
    except (HydraException, OmegaConfBaseException, *REFUSALS) as refusal:
        yield _finding(refusal, key, keys)
    for line in output.getvalue().splitlines():
        if line.startswith(("NOTICE", "WARNING")):
            yield note(key, f"verl prints: {line}")


def _finding(refusal: Exception, key: str, keys: list[str]) -> Finding:
    text = str(refusal)
    where = _FULL_KEY.search(text)
    key = where["key"] if where else key
    if unknown := _UNKNOWN.search(text):
        name = f"{key}.{unknown['name']}".lstrip(".")
        similar = nearest(name, keys)
        fix = f"Use {similar}." if similar else "Leave it out."
        return error(name, f"verl's {unknown['type']} has no {unknown['name']}: it would reject {name}.", fix)
    cause = refusal.__cause__ or refusal
    message = " ".join(str(cause).split()) or _failed_line(cause)
    fix = f"Correct {key}." if key else "Correct the value in this message."
    return error(key, f"verl rejects it: {message.rstrip('.')}.", fix)


def _failed_line(refusal: BaseException) -> str:
    """Return the line that raised, for an assertion without a message."""
    last = traceback.extract_tb(refusal.__traceback__)[-1]
    return f"{last.line} ({last.filename.rpartition('/verl/')[2]}, line {last.lineno})"
