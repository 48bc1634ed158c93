"""Parallel sizes: tensor, sequence and data parallelism must fit nodes, GPUs and the model."""

from __future__ import annotations

from collections.abc import Iterator

from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import Finding, error
from verl_node.configuration.rules.batch import ACTOR, REF, ROLLOUT, divisors, trained, trainer_roles, ulysses

TENSOR, DATA = f"{ROLLOUT}.tensor_model_parallel_size", f"{ROLLOUT}.data_parallel_size"


def rollouts_own_gpus(config: Config) -> int:
    """Return the number of GPUs that only generate (trainer.v1.trainer_mode=separate_async)."""
    return max(0, config.count(f"{ROLLOUT}.nnodes")) * max(0, config.count(f"{ROLLOUT}.n_gpus_per_node"))


def tensor_parallel_group_stays_on_its_node(config: Config, facts: Facts) -> Iterator[Finding]:
    """Across nodes each layer would wait for the network; verl asserts a part of it late."""
    group, node = config.size(TENSOR), config.per_node
    if group > node:
        yield error(TENSOR, f"{TENSOR} is {group}, and a node has {node} GPUs.", f"Set {TENSOR}={node} or less.")
    elif node % group:
        fits = divisors(node, group)[-1]
        yield error(TENSOR, f"{TENSOR} {group} does not divide the {node} GPUs of a node.", f"Set {TENSOR}={fits}.")


def rollout_replicas_use_every_gpu(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl/workers/engine_workers.py: rollout world_size is not divisible by infer_world_size."""
    replica = config.size(TENSOR) * config.size(DATA)
    gpus = rollouts_own_gpus(config) or config.gpus
    if config.size(TENSOR) <= config.per_node and gpus % replica:
        yield error(
            DATA if config.size(DATA) > 1 else TENSOR,
            f"A rollout replica takes {replica} GPUs ({TENSOR} * {DATA}), and {gpus} GPUs are not a multiple.",
            f"Choose sizes whose product divides {gpus}.",
        )


def attention_heads_divide(config: Config, facts: Facts) -> Iterator[Finding]:
    """vLLM and SGLang cannot split a head; a group with more GPUs than keys and values copies them."""
    if facts.model is None:
        return
    model, group = facts.model, config.size(TENSOR)
    kv_fits = model.kv_heads % group == 0 or group % model.kv_heads == 0
    if model.heads % group or not kv_fits:
        sizes = [size for size in divisors(config.per_node, config.per_node) if model.heads % size == 0]
        yield error(
            TENSOR,
            f"{TENSOR} {group} does not divide the model's {model.heads} attention heads ({model.kv_heads} for keys).",
            f"Set {TENSOR} to one of {', '.join(map(str, sizes))}.",
        )


def sequence_parallel_divides(config: Config, facts: Facts) -> Iterator[Finding]:
    """Ulysses distributes the heads over GPUs, and needs sequences without padding."""
    for role in _fsdp_roles(config):
        group, key = ulysses(config, role), f"{config.engine(role)}.ulysses_sequence_parallel_size"
        padding = (
            "critic.model.use_remove_padding" if role == "critic" else "actor_rollout_ref.model.use_remove_padding"
        )
        if group <= 1:
            continue
        if config.gpus % group:
            yield error(key, f"{key} {group} does not divide {config.gpus} GPUs.", "Choose a size that does.")
        if not config.on(padding):
            yield error(padding, f"{key} is {group} and {padding} is off.", f"Set {padding}=true.")


def sequence_parallel_divides_heads(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl/models/transformers/monkey_patch.py asserts it."""
    for role in _fsdp_roles(config) if facts.model else ():
        group = ulysses(config, role)
        if facts.model is not None and facts.model.heads % group:
            key = f"{config.engine(role)}.ulysses_sequence_parallel_size"
            yield error(
                key, f"{key} {group} does not divide the model's {facts.model.heads} heads.", "Choose a size that does."
            )


def _fsdp_roles(config: Config) -> list[str]:
    return trainer_roles(config) if config.uses_fsdp else []


def shards_divide(config: Config, facts: Facts) -> Iterator[Finding]:
    """-1 shards over all GPUs; a size must divide them to form a device mesh."""
    for role in trained(config) if config.uses_fsdp else ():
        key = f"{config.engine(role)}.fsdp_size"
        size = config.count(key, -1)
        if size == 0 or (size > 0 and config.gpus % min(size, config.gpus)):
            yield error(
                key, f"{key} {size} does not divide {config.gpus} GPUs.", f"Set {key}=-1 (all) or {config.per_node}."
            )


def megatron_divides(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl/utils/config.py checks it only without dynamic batches."""
    for role in trained(config):
        if config.get(f"{role}.strategy") != "megatron":
            continue
        names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
        sizes = [config.size(f"{role}.megatron.{name}") for name in names]
        together = sizes[0] * sizes[1] * sizes[2]
        if config.gpus % together:
            yield error(
                f"{role}.megatron.{names[0]}",
                f"{role}.megatron: tensor {sizes[0]} * pipeline {sizes[1]} * context {sizes[2]} does not divide "
                f"{config.gpus} GPUs.",
                "Choose sizes whose product does.",
            )


def actor_and_reference_match(config: Config, facts: Facts) -> Iterator[Finding]:
    """They share workers: another engine fails with `Expected all tensors to be on the same device`."""
    if not config.has_a_reference:
        return
    for name in ("strategy", "ulysses_sequence_parallel_size"):
        actor, ref = (config.get(f"{role}.{name}") for role in (ACTOR, REF))
        if config.has(f"{REF}.{name}") and actor != ref:
            yield error(
                f"{REF}.{name}", f"{REF}.{name} is {ref} and the actor's is {actor}.", f"Leave {REF}.{name} out."
            )
