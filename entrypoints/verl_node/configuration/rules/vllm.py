"""Settings of verl 0.4 that vLLM before 0.7 does not support.

verl 0.4 runs such a vLLM inside its FSDP workers (vllm_mode "customized"): it loads the weights and frees the KV cache
without vLLM's sleep mode, and starts no server.
"""

from __future__ import annotations

from collections.abc import Iterator

from verl_node import versions
from verl_node.configuration.facts import Config, Facts
from verl_node.configuration.finding import Finding, error
from verl_node.configuration.rules.batch import ROLLOUT

FIRST_ON_ITS_OWN = (0, 7)  # verl/workers/rollout/vllm_rollout/__init__.py at v0.4.0: customized up to 0.6.3
# LoadFormat of verl/third_party/vllm/vllm_v_0_6_3/config.py at v0.4.0.
LOAD_FORMATS = ("auto", "megatron", "hf", "dtensor", "dummy_hf", "dummy_megatron", "dummy_dtensor")


def vllm_in_the_workers(config: Config, facts: Facts) -> Iterator[Finding]:
    """verl rejects these settings when the cluster has formed, the first one with an import error."""
    if config.get(f"{ROLLOUT}.name") != "vllm" or not facts.vllm or versions.parse(facts.vllm) >= FIRST_ON_ITS_OWN:
        return
    engine = f"vLLM {facts.vllm}"
    if config.get(f"{ROLLOUT}.mode") == "async":
        yield error(
            f"{ROLLOUT}.mode",
            f"{ROLLOUT}.mode is async, which needs vLLM's own server; {engine} has none that verl can start.",
            f"Leave {ROLLOUT}.mode out (it is sync), or use an image with vLLM 0.8 or newer.",
        )
    if config.get(f"{ROLLOUT}.enforce_eager") is False and config.on(f"{ROLLOUT}.free_cache_engine"):
        yield error(
            f"{ROLLOUT}.enforce_eager",
            f"{ROLLOUT}.enforce_eager is false and free_cache_engine true: with {engine} verl cannot free a cache that "
            "CUDA graphs use.",
            f"Set {ROLLOUT}.free_cache_engine=false, or leave both out.",
        )
    load_format = config.get(f"{ROLLOUT}.load_format")
    if load_format is not None and load_format not in LOAD_FORMATS:
        yield error(
            f"{ROLLOUT}.load_format",
            f"{ROLLOUT}.load_format is {load_format}; with {engine} verl supports {', '.join(LOAD_FORMATS)}.",
            f"Leave {ROLLOUT}.load_format out (it is dummy_dtensor).",
        )
    if config.count("actor_rollout_ref.model.lora_rank") > 0:
        yield error(
            "actor_rollout_ref.model.lora_rank",
            f"actor_rollout_ref.model.lora_rank is above 0, and {engine} cannot load verl's adapters.",
            "Leave it out, or use an image with vLLM 0.7.3 or newer.",
        )
