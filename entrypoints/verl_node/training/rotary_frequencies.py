"""Keeps the frequencies of rotary position embeddings in float32, in verl's processes.

These import the module by VERL_USE_EXTERNAL_MODULES. verl converts a model that it trains in bfloat16 as a whole
(verl/workers/engine/fsdp/transformer_impl.py: module.to), with these buffers, which transformers and the rollout's
engines keep in float32. Rounded to 8 bits, a frequency changes the angle of the 1000th token by up to 2 radians, so
that trainer and engine compute different probabilities (docs/configuration.md).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import float32, nn

BUFFERS = ("inv_freq", "original_inv_freq")  # transformers' names


def keeping(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Module._apply, by which torch moves and converts a module: these buffers are moved, but not converted."""

    @wraps(apply)
    def apply_but_to_frequencies(module: Any, function: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        before = {name: module._buffers[name] for name in BUFFERS if module._buffers.get(name) is not None}
        result = apply(module, function, *arguments, **more)
        for name, buffer in before.items():
            after = module._buffers[name]
            if buffer.dtype == float32 != after.dtype:
                module._buffers[name] = buffer.to(after.device)
        return result

    return apply_but_to_frequencies


nn.Module._apply = keeping(nn.Module._apply)
