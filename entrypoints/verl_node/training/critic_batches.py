"""Overrides by which the critic has the micro batches of its own keys, with the verl releases that ignore these.

verl 0.8 and 0.9 give the critic's engine no batch sizes (https://github.com/verl-project/verl/issues/7462): it makes
micro batches of up to 32768 tokens, critic.ppo_infer_max_token_len_per_gpu, which is in no YAML. The engine reads keys
of its own in critic.fsdp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from verl_node.settings.overrides import Override
from verl_node.training import derived_overrides

MICRO, SCORING = "critic.ppo_micro_batch_size_per_gpu", "critic.forward_micro_batch_size_per_gpu"
TOKENS, ENGINES_TOKENS = "critic.ppo_max_token_len_per_gpu", "critic.ppo_infer_max_token_len_per_gpu"
ENGINE_DYNAMIC, ENGINE_MICRO, ENGINE_SCORING = (
    f"critic.fsdp.{name}" for name in ("use_dynamic_bsz", "micro_batch_size_per_gpu", "infer_micro_batch_size_per_gpu")
)


def overrides(module: str, merged: Mapping[str, Override]) -> Iterator[Override]:
    """Yield the overrides for a training with these, by verl 0.9's keys; none if it has no critic with FSDP.

    Without a key for the critic's batches, or with one of the engine's own, nothing is changed.
    """
    values = {key: override.plain() for key, override in merged.items()}
    own = {ENGINE_DYNAMIC, ENGINE_MICRO, ENGINE_SCORING, ENGINES_TOKENS} & values.keys()
    if module != derived_overrides.TRAINER or not _trains_with_fsdp(values) or own:
        return
    dynamic = values.get("critic.use_dynamic_bsz", values.get("actor_rollout_ref.actor.use_dynamic_bsz", False))
    if dynamic and values.get(TOKENS) is not None:
        yield Override("++", ENGINES_TOKENS, merged[TOKENS].value)
    elif not dynamic and values.get(MICRO) is not None:
        scoring = SCORING if values.get(SCORING) is not None else MICRO
        yield Override("++", ENGINE_DYNAMIC, "False")
        yield Override("++", ENGINE_MICRO, merged[MICRO].value)
        yield Override("++", ENGINE_SCORING, merged[scoring].value)


def _trains_with_fsdp(values: Mapping[str, object]) -> bool:
    engine = values.get("model_engine", "dp") == "dp" and not any(key.startswith("critic@") for key in values)
    trains = values.get("critic.enable")
    if trains is None:
        trains = values.get("algorithm.adv_estimator", "gae") == "gae"
    return bool(trains) and engine and values.get("critic.strategy", "fsdp") in ("fsdp", "fsdp2")


def note(series: str, added: Mapping[str, Override]) -> str:
    """Return the sentence about the overrides that were added."""
    pairs = ", ".join(f"{key}={override.value}" for key, override in added.items())
    return f"verl {series} ignores the critic's keys for its batches, so the job sets {pairs}."
