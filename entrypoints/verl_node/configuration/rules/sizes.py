"""Sizes that must be at least 1."""

from __future__ import annotations

from collections.abc import Iterator

from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import Finding, error
from verl_node.configuration.rules.batch import ACTOR, ANSWERS, MINI, REF, ROLLOUT, trained

OF_ALL = (
    "trainer.nnodes",
    "trainer.n_gpus_per_node",
    ANSWERS,
    f"{ROLLOUT}.tensor_model_parallel_size",
    f"{ROLLOUT}.data_parallel_size",
    f"{ROLLOUT}.pipeline_model_parallel_size",
)
OF_MEGATRON = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
UTILISATION = f"{ROLLOUT}.gpu_memory_utilization"
OF_SCORING = ("log_prob_micro_batch_size", "log_prob_micro_batch_size_per_gpu")


def sizes_are_above_zero(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl divides by most of them, in workers that have started by then; another kind of value is told by its kind."""
    for key in dict.fromkeys((*OF_ALL, *_of_roles(config))):
        if config.has(key) and config.count(key, 1) < 1:
            yield error(key, f"{key} is {config.get(key)}, and there has to be at least 1.", f"Say {key}=1 or more.")


def share(config: Config) -> float | None:
    """The part of a GPU's memory that the rollout takes, None where none is said that could be one."""
    value = config.get(UTILISATION)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and 0 < value <= 1 else None


def the_rollouts_share_is_a_part(config: Config, facts: Facts) -> Iterator[Finding]:
    """vllm/config/cache.py refuses others; a number of GiB is what some take it for."""
    value = config.get(UTILISATION)
    if isinstance(value, (int, float)) and share(config) is None:
        yield error(UTILISATION, f"{UTILISATION} is {value}, and a part of 1 is wanted.", f"Say {UTILISATION}=0.5.")


def _of_roles(config: Config) -> Iterator[str]:
    for role in trained(config):
        yield from (f"{role}.{MINI}", f"{role}.ppo_micro_batch_size", f"{role}.ppo_micro_batch_size_per_gpu")
    for role in (ROLLOUT, *([REF] if config.has_a_reference else [])):
        yield from (f"{role}.{name}" for name in OF_SCORING)
    for role in (ACTOR, *trained(config), *([REF] if config.has_a_reference else [])):
        yield f"{role}.ulysses_sequence_parallel_size"
        yield f"{config.engine(role)}.ulysses_sequence_parallel_size"
        if config.get(f"{role}.strategy") == "megatron":
            yield from (f"{role}.megatron.{name}" for name in OF_MEGATRON)
