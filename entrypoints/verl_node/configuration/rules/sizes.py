"""Sizes that must be at least 1."""

from __future__ import annotations

from collections.abc import Iterator

from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import Finding, error
from verl_node.configuration.rules.batch import ANSWERS, MINI, REF, ROLLOUT, trained, trainer_roles

SIZES = (
    "trainer.nnodes",
    "trainer.n_gpus_per_node",
    ANSWERS,
    f"{ROLLOUT}.tensor_model_parallel_size",
    f"{ROLLOUT}.data_parallel_size",
    f"{ROLLOUT}.pipeline_model_parallel_size",
)
MEGATRON_SIZES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
UTILISATION = f"{ROLLOUT}.gpu_memory_utilization"
SCORING_SIZES = ("log_prob_micro_batch_size", "log_prob_micro_batch_size_per_gpu")


def sizes_are_above_zero(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl divides by most of them; composition reports values of another type."""
    for key in dict.fromkeys((*SIZES, *_role_sizes(config))):
        if config.has(key) and config.count(key, 1) < 1:
            yield error(key, f"{key} is {config.get(key)}; at least 1 is required.", f"Set {key}=1 or more.")


def share(config: Config) -> float | None:
    """Return the fraction of a GPU's memory for the rollout, None without a valid value."""
    value = config.get(UTILISATION)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and 0 < value <= 1 else None


def rollout_share_is_a_fraction(config: Config, facts: Facts) -> Iterator[Finding]:
    """vllm/config/cache.py rejects other values, such as a number of GiB."""
    value = config.get(UTILISATION)
    if isinstance(value, (int, float)) and share(config) is None:
        yield error(
            UTILISATION, f"{UTILISATION} is {value}; a fraction up to 1 is required.", f"Set {UTILISATION}=0.5."
        )


def _role_sizes(config: Config) -> Iterator[str]:
    for role in trained(config):
        yield from (f"{role}.{MINI}", f"{role}.ppo_micro_batch_size", f"{role}.ppo_micro_batch_size_per_gpu")
    for role in (ROLLOUT, *([REF] if config.has_a_reference else [])):
        yield from (f"{role}.{name}" for name in SCORING_SIZES)
    for role in trainer_roles(config):
        yield f"{role}.ulysses_sequence_parallel_size"
        yield f"{config.engine(role)}.ulysses_sequence_parallel_size"
        if config.get(f"{role}.strategy") == "megatron":
            yield from (f"{role}.megatron.{name}" for name in MEGATRON_SIZES)
