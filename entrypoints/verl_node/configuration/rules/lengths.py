"""Lengths in tokens: prompts and responses against the limits of the engine and the model."""

from __future__ import annotations

from collections.abc import Iterator

from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import Finding, error, note
from verl_node.configuration.rules.batch import ROLLOUT

PROMPT, RESPONSE, CONTEXT = "data.max_prompt_length", "data.max_response_length", f"{ROLLOUT}.max_model_len"


def longest(config: Config) -> int:
    """The tokens that one prompt with its response may have."""
    return config.count(PROMPT) + config.count(RESPONSE)


def lengths_are_numbers_above_zero(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl would filter every prompt, or ask for an empty response."""
    for key in (PROMPT, RESPONSE):
        if config.has(key) and config.count(key) <= 0:
            yield error(key, f"{key} is {config.get(key)}.", f"Say {key}=1024 or the like.")


def the_rollout_holds_prompt_and_response(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl/workers/rollout/vllm_rollout/vllm_async_server.py: prompts raise, responses are cut in silence."""
    if 0 < config.count(CONTEXT) < longest(config):
        yield error(
            CONTEXT,
            f"{CONTEXT} is {config.count(CONTEXT)}, and {PROMPT} with {RESPONSE} may take {longest(config)} tokens.",
            f"Say {CONTEXT}={longest(config)}, or shorten them.",
        )


def the_model_holds_prompt_and_response(config: Config, facts: Facts) -> Iterator[Finding]:
    """Both against max_position_embeddings; what a rope_scaling adds to it is counted by Model.positions."""
    positions = facts.model.positions if facts.model else None
    if positions is None:
        return
    if longest(config) > positions:
        yield error(
            RESPONSE,
            f"{PROMPT} with {RESPONSE} may take {longest(config)} tokens, and the model was made for {positions}.",
            f"Shorten them to {positions} together, or use a model with a longer context.",
        )
    if config.count(CONTEXT) > positions:
        yield error(
            CONTEXT,
            f"{CONTEXT} is {config.count(CONTEXT)}, and the model was made for {positions}.",
            f"Say {CONTEXT}={positions}.",
        )


def whole_prompts_fit_a_pass(config: Config, facts: Facts) -> Iterator[Finding]:
    """Without chunked prefill an engine has to take a whole sequence at once; verl 0.9 raises the bound by itself."""
    key = f"{ROLLOUT}.max_num_batched_tokens"
    context = config.count(CONTEXT) or (facts.model.positions if facts.model else None) or 0
    if config.get(f"{ROLLOUT}.enable_chunked_prefill") is False and 0 < config.count(key) < context:
        yield note(key, f"{key} is {config.count(key)} without chunked prefill: it counts as {context}, the context.")
