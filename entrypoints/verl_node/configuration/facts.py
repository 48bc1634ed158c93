"""Facts for the rules: the composed configuration, the job, its model and its data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MISSING = "???"  # OmegaConf's mark of a required value
_CACHE_BYTES = 2  # of a number in a key or value: the rollout's bf16


class Config:
    """A configuration with all interpolations resolved, read by dotted keys."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def get(self, key: str) -> Any:
        """Return the value, None if the key does not exist or its value is missing."""
        value: Any = self.values
        for name in key.split("."):
            if not isinstance(value, Mapping) or name not in value:
                return None
            value = value[name]
        return None if value == MISSING else value

    def listed(self, key: str) -> list[Any]:
        """Return the value as a list, also for a single value and for none."""
        value = self.get(key)
        return value if isinstance(value, list) else [value] if value else []

    def has(self, key: str) -> bool:
        """Whether the key exists."""
        parent, _, name = key.rpartition(".")
        values = self.get(parent) if parent else self.values
        return isinstance(values, Mapping) and name in values

    def count(self, key: str, default: int = 0) -> int:
        """Return the value if it is an integer, else ``default``."""
        value = self.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def size(self, key: str) -> int:
        """Return the value if it is at least 1, else 1; sizes.py reports smaller ones."""
        return max(1, self.count(key, 1))

    def on(self, key: str) -> bool:
        """Whether the value is true."""
        return self.get(key) is True

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return self.size("trainer.nnodes") * self.per_node

    @property
    def per_node(self) -> int:
        """GPUs of one node."""
        return self.size("trainer.n_gpus_per_node")

    @property
    def trains_a_critic(self) -> bool:
        """Whether a critic is trained; verl/trainer/ppo/utils.py: need_critic."""
        enabled = self.get("critic.enable")
        return self.get("algorithm.adv_estimator") == "gae" if enabled is None else bool(enabled)

    @property
    def has_a_reference(self) -> bool:
        """Whether a reference model is used; verl/trainer/ppo/utils.py: need_reference_policy."""
        return self.on("algorithm.use_kl_in_reward") or self.on("actor_rollout_ref.actor.use_kl_loss")

    def engine(self, role: str) -> str:
        """Return the key of a role's FSDP engine, which verl moved for the critic in 0.8."""
        keys = (f"{role}.fsdp", f"{role}.fsdp_config", f"{role}.model.fsdp_config")
        return next((key for key in keys if self.has(key)), keys[0])

    @property
    def uses_fsdp(self) -> bool:
        """Whether one of verl's FSDP engines trains the actor."""
        return str(self.get("actor_rollout_ref.actor.strategy")).startswith("fsdp")


@dataclass(frozen=True)
class Model:
    """Sizes of a model; ``positions`` is the longest sequence that it supports."""

    parameters: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    positions: int | None
    kv_bytes_per_token: int


@dataclass(frozen=True)
class Facts:
    """Facts that are not in the configuration; memory in bytes, None if unknown.

    ``wandb`` is whether this account can log to Weights & Biases, ``engines`` the rollout engines of the image,
    ``vllm`` the version of its vLLM, ``rows`` the number of rows of the training data.
    """

    gpu_memory: int | None = None
    node_memory: int | None = None
    wandb: bool = False
    engines: tuple[str, ...] | None = None
    vllm: str = ""
    model: Model | None = None
    rows: int | None = None


def read_model(folder: Path) -> Model:
    """Return the sizes of a model: transformers builds it from its config.json without allocating weights.

    Raises OSError, ValueError, KeyError or ImportError.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    with torch.device("meta"):
        parameters = sum(part.numel() for part in AutoModelForCausalLM.from_config(config).parameters())
    text = config.get_text_config()
    heads = int(text.num_attention_heads)
    size = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    kv_heads = int(getattr(text, "num_key_value_heads", None) or heads)
    return Model(
        parameters=parameters,
        layers=int(text.num_hidden_layers),
        heads=heads,
        kv_heads=kv_heads,
        head_size=size,
        vocabulary=int(text.vocab_size),
        positions=_positions(text),
        kv_bytes_per_token=_kv_bytes(text, kv_heads, size),
    )


def _positions(text: Any) -> int | None:
    """Return the longest sequence; a scaling of RoPE multiplies that of the training, as in vLLM."""
    plain = int(getattr(text, "max_position_embeddings", None) or 0)
    scaling = getattr(text, "rope_scaling", None) or {}
    trained = int(scaling.get("original_max_position_embeddings") or plain)
    return max(plain, int(trained * float(scaling.get("factor") or 1))) or None


def _kv_bytes(text: Any, kv_heads: int, size: int) -> int:
    """Return a token's bytes in all layers; latent attention has one vector per layer."""
    latent = getattr(text, "kv_lora_rank", None)
    numbers = latent + text.qk_rope_head_dim if latent else 2 * kv_heads * size
    return int(numbers * text.num_hidden_layers * _CACHE_BYTES)


def model_folder(name: str) -> Path | None:
    """Return the local folder of a model with a valid config.json, by path or hub name."""
    if name.startswith("/"):
        try:
            json.loads((Path(name) / "config.json").read_bytes())
        except (OSError, ValueError):
            return None
        return Path(name)
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def count_rows(files: Sequence[str]) -> int | None:
    """Return the number of rows of parquet files, None if one does not exist or cannot be read."""
    from pyarrow import ArrowInvalid, parquet

    try:
        return sum(int(parquet.read_metadata(file).num_rows) for file in files)
    except (OSError, ArrowInvalid):
        return None
