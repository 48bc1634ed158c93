"""A model's size and shape from its config.json: transformers builds it without allocating weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_node.configuration.facts import Model

_CACHED = 2  # bytes of a key's or value's number: the rollout's bf16


def shape(folder: Path) -> Model:
    """Return the shape of the model in ``folder``. Raises OSError, ValueError, KeyError or ImportError."""
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
        kv_bytes_per_token=_cached(text, kv_heads, size),
    )


def rows(files: Sequence[str]) -> int | None:
    """Return how many rows these parquet files have, None where one is not here or is none."""
    from pyarrow import ArrowInvalid, parquet

    try:
        return sum(int(parquet.read_metadata(file).num_rows) for file in files)
    except (OSError, ArrowInvalid):
        return None


def _positions(text: Any) -> int | None:
    """The longest sequence; a scaling of RoPE multiplies what the model was trained for, as vLLM counts it."""
    own = int(getattr(text, "max_position_embeddings", None) or 0)
    scaling = getattr(text, "rope_scaling", None) or {}
    trained = int(scaling.get("original_max_position_embeddings") or own)
    return max(own, int(trained * float(scaling.get("factor") or 1))) or None


def _cached(text: Any, kv_heads: int, size: int) -> int:
    """Bytes of one token in all layers; multi-head latent attention keeps one compressed vector for all heads."""
    latent = getattr(text, "kv_lora_rank", None)
    numbers = latent + text.qk_rope_head_dim if latent else 2 * kv_heads * size
    return int(numbers * text.num_hidden_layers * _CACHED)


def found(name: str) -> Path | None:
    """Return the folder of a model that is here, by path or by a hub's name in HF_HOME, if it has a config.json."""
    if name.startswith("/"):
        folder = Path(name)
        return folder if _is_one(folder / "config.json") else None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def _is_one(file: Path) -> bool:
    try:
        json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False
    return True
