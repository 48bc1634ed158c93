"""The list of all rules for configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import Finding
from verl_node.configuration.rules import batch, lengths, memory, parallel, paths, sizes, vllm

Rule = Callable[[Config, Facts], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    sizes.sizes_are_above_zero,
    sizes.rollout_share_is_a_fraction,
    batch.answers_divide_among_gpus,
    batch.mini_batch_fits_the_batch,
    batch.mini_batch_divides_among_replicas,
    batch.micro_batches_are_set,
    batch.micro_batches_divide_a_gpus_share,
    batch.token_budgets_hold_one_sequence,
    batch.dynamic_batch_settings_agree,
    batch.estimator_has_answers_to_compare,
    parallel.tensor_parallel_group_stays_on_its_node,
    parallel.rollout_replicas_use_every_gpu,
    parallel.sequence_parallel_divides,
    parallel.shards_divide,
    parallel.megatron_divides,
    parallel.actor_and_reference_match,
    lengths.lengths_are_above_zero,
    lengths.rollout_holds_prompt_and_response,
    lengths.whole_sequences_fit_a_pass,
    vllm.vllm_in_the_workers,
    paths.paths_are_absolute,
    paths.wandb_has_its_key,
    paths.resume_names_a_checkpoint,
)
"""Rules that need only the configuration."""

LATER_RULES: tuple[Rule, ...] = (
    batch.data_fill_a_batch,
    parallel.attention_heads_divide,
    parallel.sequence_parallel_divides_heads,
    lengths.model_holds_prompt_and_response,
    paths.some_step_is_saved,
    memory.memory_of_a_gpu,
    memory.room_for_keys_and_values,
    memory.memory_of_a_node,
)
"""Rules that also need the model or the data, which may have to be downloaded first."""


def apply(config: Config, facts: Facts, rules: Sequence[Rule] = RULES) -> list[Finding]:
    """Return the findings of the rules."""
    return [finding for rule in rules for finding in rule(config, facts)]
