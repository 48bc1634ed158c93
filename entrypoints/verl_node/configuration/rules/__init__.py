"""The list of all rules for configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import Finding
from verl_node.configuration.rules import batch, lengths, memory, parallel, paths, sizes

Rule = Callable[[Config, Facts], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    sizes.sizes_are_above_zero,
    sizes.the_rollouts_share_is_a_part,
    batch.answers_divide_among_gpus,
    batch.a_mini_batch_is_no_larger_than_the_batch,
    batch.a_mini_batch_divides_among_replicas,
    batch.micro_batches_are_set,
    batch.micro_batches_divide_what_a_gpu_gets,
    batch.token_budgets_hold_one_sequence,
    batch.dynamic_batches_are_said_once,
    batch.answers_have_others_to_be_compared_with,
    parallel.a_tensor_parallel_group_stays_on_its_node,
    parallel.rollout_replicas_use_every_gpu,
    parallel.sequence_parallel_divides,
    parallel.shards_divide,
    parallel.megatron_divides,
    parallel.actor_and_reference_match,
    lengths.lengths_are_numbers_above_zero,
    lengths.the_rollout_holds_prompt_and_response,
    lengths.whole_prompts_fit_a_pass,
    paths.paths_are_absolute,
    paths.wandb_has_its_key,
    paths.a_resume_names_a_checkpoint,
)
"""Those that need the configuration alone."""

LATER_RULES: tuple[Rule, ...] = (
    batch.data_fill_a_batch,
    parallel.attention_heads_divide,
    parallel.sequence_parallel_divides_heads,
    lengths.the_model_holds_prompt_and_response,
    paths.some_step_is_saved,
    memory.memory_of_a_gpu,
    memory.room_for_keys_and_values,
    memory.memory_of_a_node,
)
"""Those that need the model or the data as well, which may have to be fetched first."""


def judge(config: Config, facts: Facts, rules: Sequence[Rule] = RULES) -> list[Finding]:
    """What the rules find."""
    return [finding for rule in rules for finding in rule(config, facts)]
