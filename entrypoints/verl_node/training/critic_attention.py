"""Loads PPO's critic without flash-attn, in verl's processes, which import this module by VERL_USE_EXTERNAL_MODULES.

verl's FSDP engines load the critic with flash_attention_2 whatever the configuration says, in every release from 0.4 to
0.9.1 (verl/utils/model.py: load_valuehead_model). This module replaces that function.
"""

from __future__ import annotations

from typing import Any

from verl.utils import model

FLASH, OTHERWISE = "flash_attention_2", "sdpa"


def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
    """Load a model with a value head, with the attention of its configuration unless that is flash-attn's."""
    from transformers import AutoModelForTokenClassification

    chosen = getattr(model_config, "_attn_implementation", None) or OTHERWISE
    return AutoModelForTokenClassification.from_pretrained(
        local_path,
        torch_dtype=torch_dtype,
        config=model_config,
        attn_implementation=OTHERWISE if chosen == FLASH else chosen,
        trust_remote_code=trust_remote_code,
    )


model.load_valuehead_model = load_valuehead_model
