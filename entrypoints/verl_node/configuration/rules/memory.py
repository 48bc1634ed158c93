"""Memory estimates: the minimum bytes of a training per GPU and per node, from the number of parameters.

Not included are activations, communication buffers, and the memory of CUDA and NCCL. Sizes are those of verl's mixed
precision with Adam: trained models in ``model_dtype`` (by default fp32), the rollout in bf16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verl_node.configuration.facts import Config, Facts, Model
from verl_node.configuration.finding import Finding, error, note, warning
from verl_node.configuration.rules.batch import ACTOR, REF, ROLLOUT, trainer_roles
from verl_node.configuration.rules.lengths import CONTEXT, longest
from verl_node.configuration.rules.parallel import TENSOR, rollouts_own_gpus
from verl_node.configuration.rules.sizes import UTILISATION, share

GB = 10**9
BYTES = {"fp32": 4, "float32": 4, "32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "16": 2}
# Megatron's distributed optimiser: bf16 weights and fp32 gradients on each GPU; fp32 weights and moments sharded.
MEGATRON_WEIGHTS, MEGATRON_GRADIENTS, MEGATRON_SHARDED = 2, 4, 12
MOMENTS = 2  # Adam's, in the precision of the weights
NODE_TIGHT = 0.8  # of a node's memory: the rest is for Ray's object store, data loaders and the page cache


@dataclass(frozen=True)
class Role:
    """One model on one GPU; an unused offloaded part is in the node's memory."""

    key: str
    weights: float
    gradients: float
    optimiser: float
    weights_offloaded: bool
    optimiser_offloaded: bool
    offloaded_late: bool = False
    """Whether offloaded weights stay on the GPU until their first use."""

    @property
    def busy(self) -> float:
        """Bytes on the GPU while it is used."""
        return self.weights + self.gradients + self.optimiser

    @property
    def idle(self) -> float:
        """Bytes on the GPU while another role is used; gradients are freed after each step."""
        return self.weights * (not self.weights_offloaded) + self.optimiser * (not self.optimiser_offloaded)

    @property
    def idle_at_start(self) -> float:
        """The same before the first step, which creates Adam's moments."""
        return self.weights * (not self.weights_offloaded or self.offloaded_late)

    @property
    def on_node(self) -> float:
        """Bytes in the node's memory, for this GPU."""
        return self.weights * self.weights_offloaded + self.optimiser * self.optimiser_offloaded


def roles(config: Config, model: Model) -> list[Role]:
    """Return the roles on each GPU of the trainer."""
    return [_role(config, name, model, is_trained=name != REF) for name in trainer_roles(config)]


def _role(config: Config, name: str, model: Model, *, is_trained: bool) -> Role:
    if config.get(f"{name}.strategy") == "megatron":
        engine = f"{name}.megatron"
        split = config.size(f"{engine}.tensor_model_parallel_size") * config.size(
            f"{engine}.pipeline_model_parallel_size"
        )
        weights = model.parameters * MEGATRON_WEIGHTS / split
        gradients = model.parameters * MEGATRON_GRADIENTS / split
        optimiser = model.parameters * MEGATRON_SHARDED / config.gpus
    else:
        engine = config.engine(name)
        shards = config.count(f"{engine}.fsdp_size", -1)
        precision = BYTES.get(str(config.get(f"{engine}.model_dtype") or "fp32"), 4)
        weights = gradients = model.parameters * precision / (shards if 0 < shards < config.gpus else config.gpus)
        optimiser = MOMENTS * weights
    lora_keys = ("actor_rollout_ref.model.lora_rank", "actor_rollout_ref.model.lora.rank")
    adapters = any(config.count(key) > 0 for key in lora_keys)
    if not is_trained or (adapters and name == ACTOR):  # an adapter has less than a hundredth of the parameters
        gradients = optimiser = 0.0
    both = config.on(f"{engine}.offload_policy")
    # With verl 0.9.1 and torch 2.11 FSDP1's NO_SHARD kept the reference's weights until its first forward pass.
    late = name == REF and config.gpus == 1 and config.get(f"{ACTOR}.strategy") == "fsdp"
    return Role(
        name,
        weights,
        gradients,
        optimiser,
        both or config.on(f"{engine}.param_offload"),
        both or config.on(f"{engine}.optimizer_offload"),
        offloaded_late=late,
    )


def memory_of_a_gpu(config: Config, facts: Facts) -> Iterator[Finding]:
    """The minimum on each GPU while a role is trained, and while the rollout engine generates."""
    if facts.model is None:
        return
    parts = roles(config, facts.model)
    for part in parts:
        between = "offloaded" if part.weights_offloaded else "stays on the GPU"
        yield note(
            part.key,
            f"memory of {part.key} on each GPU: weights {_gb(part.weights)}"
            + (f", gradients {_gb(part.gradients)}, optimiser {_gb(part.optimiser)}" if part.gradients else "")
            + f"; {between} while it is not used.",
        )
    if facts.gpu_memory is None:
        return
    learning = max(part.busy + sum(other.idle for other in parts if other is not part) for part in parts)
    if learning > facts.gpu_memory:
        yield error(
            config.engine(ACTOR),
            f"A GPU needs at least {_gb(learning)} for the weights, gradients and optimiser of "
            f"{', '.join(part.key for part in parts)}, and has {_gb(facts.gpu_memory)}.",
            "Train on more GPUs, offload (…param_offload=true, …optimizer_offload=true), or use a smaller model.",
        )
    elif not rollouts_own_gpus(config):
        yield from _with_rollout(config, facts.gpu_memory, parts)


def _with_rollout(config: Config, total: int, parts: list[Role]) -> Iterator[Finding]:
    part = share(config)
    if part is None or config.get(f"{ROLLOUT}.name") not in ("vllm", "sglang"):
        return
    at_start, later = (sum(getattr(part, state) for part in parts) for state in ("idle_at_start", "idle"))
    kept = max(at_start, later)
    most = int((total - kept) / total * 100) / 100
    if kept + part * total > total:
        make = error if at_start + part * total > total else warning
        yield make(
            UTILISATION,
            f"{UTILISATION} {part} is {_gb(part * total)} of a GPU's {_gb(total)}, and the training keeps "
            f"{_gb(kept)} of it.",
            f"Set {UTILISATION}={most:.2f} or less, or offload: {config.engine(ACTOR)}.param_offload=true and "
            "optimizer_offload=true.",
        )


def room_for_keys_and_values(config: Config, facts: Facts) -> Iterator[Finding]:
    """vLLM fails with `No available memory for the cache blocks` if not even one sequence fits."""
    part, context = share(config), config.count(CONTEXT) or longest(config)
    by_engine = config.get(f"{ROLLOUT}.name") in ("vllm", "sglang")
    if facts.model is None or part is None or context < 1 or not by_engine:
        return
    group = config.size(TENSOR)
    weights = facts.model.parameters * BYTES.get(str(config.get(f"{ROLLOUT}.dtype")), 2) / group
    token = facts.model.kv_bytes_per_token / min(group, facts.model.kv_heads)
    sizes = (
        f"memory of the rollout on each GPU: weights {_gb(weights)}, and {token / 1000:.1f} kB per token of its cache"
    )
    if facts.gpu_memory is None:
        yield note(ROLLOUT, f"{sizes}.")
        return
    cache = part * facts.gpu_memory - weights
    if cache < token * context:
        yield error(
            UTILISATION,
            f"{UTILISATION} {part} is {_gb(part * facts.gpu_memory)} of a GPU, its weights take {_gb(weights)}, and "
            f"keys and values of one sequence of {context} tokens {_gb(token * context)}.",
            f"Raise {UTILISATION} or {TENSOR}.",
        )
    else:
        yield note(ROLLOUT, f"{sizes}: room for {int(cache / token / context)} sequences of {context} tokens.")


def memory_of_a_node(config: Config, facts: Facts) -> Iterator[Finding]:
    """Offloaded parts of all its GPUs are in the memory of a node."""
    if facts.model is None:
        return
    offloaded = sum(part.on_node for part in roles(config, facts.model)) * config.per_node
    if offloaded == 0:
        return
    yield note(ACTOR, f"offloaded: {_gb(offloaded)} in the memory of each node.")
    if facts.node_memory is not None and offloaded > NODE_TIGHT * facts.node_memory:
        make = error if offloaded > facts.node_memory else warning
        yield make(
            f"{config.engine(ACTOR)}.param_offload",
            f"{_gb(offloaded)} would be offloaded to the memory of each node, which has {_gb(facts.node_memory)}.",
            f"Request more: sbatch --mem={int(offloaded / NODE_TIGHT / 2**30) + 1}G, or offload less.",
        )


def _gb(size: float) -> str:
    return f"{size / GB:.1f} GB" if size >= GB / 10 else f"{size / 10**6:.1f} MB"
