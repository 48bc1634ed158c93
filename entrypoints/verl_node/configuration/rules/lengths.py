"""Lengths in tokens: prompts and responses within the limits of the engine and the model."""

from __future__ import annotations

from collections.abc import Iterator

from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import Finding, error, note
from verl_node.configuration.rules.batch import ROLLOUT

PROMPT, RESPONSE, CONTEXT = "data.max_prompt_length", "data.max_response_length", f"{ROLLOUT}.max_model_len"


def longest(config: Config) -> int:
    """Return the maximum tokens of a prompt with its response."""
    return config.count(PROMPT) + config.count(RESPONSE)


def lengths_are_above_zero(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl would filter out every prompt, or generate empty responses."""
    for key in (PROMPT, RESPONSE):
        if config.has(key) and config.count(key) <= 0:
            yield error(key, f"{key} is {config.get(key)}.", f"Set for example {key}=1024.")


def rollout_holds_prompt_and_response(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl/workers/rollout/vllm_rollout/vllm_async_server.py: long prompts raise, responses are silently cut."""
    if 0 < config.count(CONTEXT) < longest(config):
        yield error(
            CONTEXT,
            f"{CONTEXT} is {config.count(CONTEXT)}, and {PROMPT} with {RESPONSE} may take {longest(config)} tokens.",
            f"Set {CONTEXT}={longest(config)}, or shorten them.",
        )


def model_holds_prompt_and_response(config: Config, facts: Facts) -> Iterator[Finding]:
    """max_position_embeddings limits both; Model.positions includes rope_scaling."""
    positions = facts.model.positions if facts.model else None
    if positions is None:
        return
    if longest(config) > positions:
        yield error(
            RESPONSE,
            f"{PROMPT} with {RESPONSE} may take {longest(config)} tokens, and the model supports {positions}.",
            f"Shorten them to {positions} together, or use a model with a longer context.",
        )
    if config.count(CONTEXT) > positions:
        yield error(
            CONTEXT,
            f"{CONTEXT} is {config.count(CONTEXT)}, and the model supports {positions}.",
            f"Set {CONTEXT}={positions}.",
        )


def whole_sequences_fit_a_pass(config: Config, facts: Facts) -> Iterator[Finding]:
    """Without chunked prefill an engine needs whole sequences; verl 0.9 raises the limit."""
    key = f"{ROLLOUT}.max_num_batched_tokens"
    context = config.count(CONTEXT) or (facts.model.positions if facts.model else None) or 0
    if config.get(f"{ROLLOUT}.enable_chunked_prefill") is False and 0 < config.count(key) < context:
        yield note(key, f"{key} is {config.count(key)} without chunked prefill: verl uses {context}, the context.")
