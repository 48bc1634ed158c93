"""Runs verl's own validation of a configuration: its trainer's checks and its dataclasses."""

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

# Made by verl's workers and trainers with omega_conf_to_dataclass; a reference is made of parts, so its parts are.
DATACLASSES = (
    "actor_rollout_ref.actor",
    "actor_rollout_ref.ref.fsdp_config",
    "actor_rollout_ref.ref.megatron",
    "actor_rollout_ref.rollout",
    "actor_rollout_ref.model",
    "critic",
    "algorithm",
)
# What a check of another release's code may end with; anything else is a mistake of ours and shall be seen as one.
REFUSALS = (AssertionError, ValueError, TypeError, KeyError, AttributeError, NotImplementedError, RuntimeError)
_UNKNOWN = re.compile(r"(?P<type>\w+)\.__init__\(\) got an unexpected keyword argument '(?P<name>\w+)'")
_WHERE = re.compile(r"full_key: (?P<key>[\w.]+)")


# Where this image's verl has the values that are registered, by modules of its own or of others.
REGISTRIES = {
    "actor_rollout_ref.rollout.name": ("verl.workers.rollout.replica", "RolloutReplicaRegistry._registry"),
    "algorithm.adv_estimator": ("verl.trainer.ppo.core_algos", "ADV_ESTIMATOR_REGISTRY"),
    "actor_rollout_ref.actor.policy_loss.loss_mode": ("verl.trainer.ppo.core_algos", "POLICY_LOSS_REGISTRY"),
    "trainer.logger": ("verl.utils.tracking", "Tracking.supported_backend"),
}


def registered(key: str) -> list[str]:
    """The values that the image's verl takes for ``key``; importing verl loads what VERL_USE_EXTERNAL_MODULES names."""
    module, path = REGISTRIES.get(key, ("", ""))
    if not module or importlib.util.find_spec("verl") is None:
        return []
    found = attrgetter(path)(importlib.import_module(module))
    return [str(getattr(name, "value", name)) for name in found]


def findings(config: Any, whole: Config, known: list[str]) -> list[Finding]:
    """What verl finds in ``config`` (``whole`` is the same, resolved), of whose keys ``known`` are the trainer's own.

    Its model's files need not be here: what HFModelConfig would load of them, prepare looks at.
    """
    try:
        _load_no_model()
        validate = _validation()
    except ImportError as missing:
        return [warning("", f"verl cannot be imported here: {missing}.", "Look at the image; training needs it, too.")]
    if validate is None:
        return [warning("", "This verl has no validation of its own that is known.", "Read its trainer's words.")]
    found = [refusal for key in _made(whole) for refusal in _tried(partial(_make, config, key), key, known)]
    attempt = partial(validate, config, whole.has_a_reference, whole.trains_a_critic)
    return list(dict.fromkeys([*found, *_tried(attempt, "", known)]))  # the whole makes the same parts again


def _load_no_model() -> None:
    """Have HFModelConfig take its fields and no more; verl before 0.5 has no such classes."""
    if importlib.util.find_spec("verl.workers.config") is not None:
        model = getattr(importlib.import_module("verl.workers.config"), "HFModelConfig", None)
        if model is not None:
            model.__post_init__ = lambda self: None


def _validation() -> Callable[[Any, bool, bool], None] | None:
    """A function of its own since verl 0.5; before, a method of a trainer whose other parts are not looked at."""
    from verl.utils import config as utilities

    validate = getattr(utilities, "validate_config", None)
    if validate is not None:
        return lambda config, reference, critic: validate(
            config=config, use_reference_policy=reference, use_critic=critic
        )
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    method = getattr(RayPPOTrainer, "_validate_config", None)
    if method is None:
        return None
    return lambda config, reference, critic: method(
        SimpleNamespace(config=config, use_reference_policy=reference, use_critic=critic)
    )


def _made(whole: Config) -> list[str]:
    used = {"critic": whole.trains_a_critic, "actor_rollout_ref.ref": whole.has_a_reference}
    wanted = [key for key in DATACLASSES if all(used[role] for role in used if key.startswith(role))]
    return [key for key in wanted if whole.has(f"{key}._target_")]


def _make(config: Any, key: str) -> None:
    from omegaconf import OmegaConf
    from verl.utils.config import omega_conf_to_dataclass

    omega_conf_to_dataclass(OmegaConf.select(config, key))


def _tried(attempt: Callable[[], Any], key: str, known: list[str]) -> Iterator[Finding]:
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attempt()
    except ImportError as missing:
        yield note(
            key, f"verl's own validation of {key or 'the whole'} needs {missing.name}, which is not in this image."
        )
    except (HydraException, OmegaConfBaseException, *REFUSALS) as refused:
        yield _refusal(refused, key, known)
    for line in said.getvalue().splitlines():
        if line.startswith(("NOTICE", "WARNING")):
            yield note(key, f"verl says: {line}")


def _refusal(refused: Exception, key: str, known: list[str]) -> Finding:
    text = str(refused)
    where = _WHERE.search(text)
    key = where["key"] if where else key
    if unknown := _UNKNOWN.search(text):
        name = f"{key}.{unknown['name']}".lstrip(".")
        meant = nearest(name, known)
        fix = f"Say {meant}." if meant else "Leave it out."
        return error(name, f"verl's {unknown['type']} has no {unknown['name']}: it would refuse {name}.", fix)
    cause = refused.__cause__ or refused
    words = " ".join(str(cause).split()) or _line(cause)
    return error(key, f"verl refuses it: {words.rstrip('.')}.", f"Correct {key}." if key else "Correct what it names.")


def _line(refused: BaseException) -> str:
    """Return the line that raised, for an assertion without words."""
    last = traceback.extract_tb(refused.__traceback__)[-1]
    return f"{last.line} ({last.filename.rpartition('/verl/')[2]}, line {last.lineno})"
