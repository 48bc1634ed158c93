"""Memory estimates: the least bytes that a training needs per GPU and per node, from the number of parameters.

Not counted are activations, buckets of communication, CUDA's and NCCL's own. Sizes are those of mixed precision with
Adam as verl sets it up: all that is trained in ``model_dtype`` (fp32 unless said otherwise), the rollout in bf16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verl_node.configuration.facts import Config, Facts, Model
from verl_node.configuration.finding import Finding, error, note, warning
from verl_node.configuration.rules.batch import ACTOR, REF, ROLLOUT, trained
from verl_node.configuration.rules.lengths import CONTEXT, longest
from verl_node.configuration.rules.parallel import TENSOR, rollouts_own_gpus
from verl_node.configuration.rules.sizes import UTILISATION, share

GB = 10**9
BYTES = {"fp32": 4, "float32": 4, "32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "16": 2}
# Megatron's distributed optimiser: bf16 weights and fp32 gradients on each GPU; fp32 weights and moments are spread.
MEGATRON_WEIGHTS, MEGATRON_GRADIENTS, MEGATRON_SPREAD = 2, 4, 12
MOMENTS = 2  # Adam's, in the weights' own precision
NODE_TIGHT = 0.8  # of a node's memory: the rest is Ray's object store, the data loaders and the page cache


@dataclass(frozen=True)
class Role:
    """One model of the training on one GPU; an offloaded part lies in the node's memory while it is not used."""

    key: str
    weights: float
    gradients: float
    optimiser: float
    weights_offloaded: bool
    optimiser_offloaded: bool

    @property
    def busy(self) -> float:
        """On the GPU while it is at work."""
        return self.weights + self.gradients + self.optimiser

    @property
    def idle(self) -> float:
        """On the GPU while another is at work; gradients are dropped after each step."""
        return self.weights * (not self.weights_offloaded) + self.optimiser * (not self.optimiser_offloaded)

    @property
    def idle_at_start(self) -> float:
        """The same before the first step: Adam's moments come with it."""
        return self.weights * (not self.weights_offloaded)

    @property
    def on_node(self) -> float:
        """In the node's memory, for this GPU."""
        return self.weights * self.weights_offloaded + self.optimiser * self.optimiser_offloaded


def roles(config: Config, model: Model) -> list[Role]:
    """What lies on each GPU of the trainer."""
    names = [*trained(config), *([REF] if config.has_a_reference else [])]
    return [_role(config, name, model, learns=name != REF) for name in names]


def _role(config: Config, name: str, model: Model, *, learns: bool) -> Role:
    if config.get(f"{name}.strategy") == "megatron":
        engine = f"{name}.megatron"
        split = config.size(f"{engine}.tensor_model_parallel_size") * config.size(
            f"{engine}.pipeline_model_parallel_size"
        )
        weights = model.parameters * MEGATRON_WEIGHTS / split
        gradients = model.parameters * MEGATRON_GRADIENTS / split
        spread = model.parameters * MEGATRON_SPREAD / config.gpus
    else:
        engine = config.engine(name)
        shards = config.count(f"{engine}.fsdp_size", -1)
        each = BYTES.get(str(config.get(f"{engine}.model_dtype") or "fp32"), 4)
        weights = gradients = model.parameters * each / (shards if 0 < shards < config.gpus else config.gpus)
        spread = MOMENTS * weights
    adapters = (
        max(config.count("actor_rollout_ref.model.lora_rank"), config.count("actor_rollout_ref.model.lora.rank")) > 0
    )
    if not learns or (adapters and name == ACTOR):  # an adapter has less than a hundredth of the parameters
        gradients = spread = 0.0
    both = config.on(f"{engine}.offload_policy")
    return Role(
        name,
        weights,
        gradients,
        spread,
        both or config.on(f"{engine}.param_offload"),
        both or config.on(f"{engine}.optimizer_offload"),
    )


def memory_of_a_gpu(config: Config, facts: Facts) -> Iterator[Finding]:
    """The least that each GPU needs while something learns, and while the rollout engine generates."""
    if facts.model is None:
        return
    parts = roles(config, facts.model)
    for part in parts:
        places = "offloaded" if part.weights_offloaded else "stays on the GPU"
        yield note(
            part.key,
            f"memory of {part.key} on each GPU: weights {_gb(part.weights)}"
            + (f", gradients {_gb(part.gradients)}, optimiser {_gb(part.optimiser)}" if part.gradients else "")
            + f"; {places} between its turns.",
        )
    if facts.gpu_memory is None:
        return
    learning = max(part.busy + sum(other.idle for other in parts if other is not part) for part in parts)
    if learning > facts.gpu_memory:
        yield error(
            config.engine(ACTOR),
            f"A GPU needs at least {_gb(learning)} for the weights, gradients and optimiser of "
            f"{', '.join(part.key for part in parts)}, and has {_gb(facts.gpu_memory)}.",
            "Train on more GPUs, offload (…param_offload=true, …optimizer_offload=true), or take a smaller model.",
        )
    elif not rollouts_own_gpus(config):
        yield from _beside_the_rollout(config, facts.gpu_memory, parts)


def _beside_the_rollout(config: Config, total: int, parts: list[Role]) -> Iterator[Finding]:
    part = share(config)
    if part is None or config.get(f"{ROLLOUT}.name") not in ("vllm", "sglang"):
        return
    at_start, later = (sum(getattr(part, state) for part in parts) for state in ("idle_at_start", "idle"))
    most = int((total - later) / total * 100) / 100
    if at_start + part * total > total or later + part * total > total:
        make = error if at_start + part * total > total else warning
        yield make(
            UTILISATION,
            f"{UTILISATION} {part} is {_gb(part * total)} of a GPU's {_gb(total)}, and {_gb(later)} of it stay with "
            "what is trained.",
            f"Say {UTILISATION}={most:.2f} or less, or offload: {config.engine(ACTOR)}.param_offload=true and "
            "optimizer_offload=true.",
        )


def room_for_keys_and_values(config: Config, facts: Facts) -> Iterator[Finding]:
    """vLLM ends with `No available memory for the cache blocks` where not one sequence has room."""
    part, context = share(config), config.count(CONTEXT) or longest(config)
    by_engine = config.get(f"{ROLLOUT}.name") in ("vllm", "sglang")
    if facts.model is None or part is None or context < 1 or not by_engine:
        return
    group = config.size(TENSOR)
    weights = facts.model.parameters * BYTES.get(str(config.get(f"{ROLLOUT}.dtype")), 2) / group
    token = facts.model.kv_bytes_per_token / min(group, facts.model.kv_heads)
    said = f"memory of the rollout on each GPU: weights {_gb(weights)}, and {token / 1000:.1f} kB a token of its cache"
    if facts.gpu_memory is None:
        yield note(ROLLOUT, f"{said}.")
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
        yield note(ROLLOUT, f"{said}: room for {int(cache / token / context)} sequences of {context} tokens.")


def memory_of_a_node(config: Config, facts: Facts) -> Iterator[Finding]:
    """What is offloaded lies in the memory of every node, as much as its GPUs' parts together."""
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
            f"Ask for more: sbatch --mem={int(offloaded / NODE_TIGHT / 2**30) + 1}G, or offload less.",
        )


def _gb(size: float) -> str:
    return f"{size / GB:.1f} GB" if size >= GB / 10 else f"{size / 10**6:.1f} MB"
