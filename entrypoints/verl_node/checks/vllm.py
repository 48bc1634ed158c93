"""What vLLM's rollout does not survive."""

from __future__ import annotations

from verl_node.checks.answer import OK, Result
from verl_node.checks.check import check
from verl_node.settings import Settings

_ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


@check("vllm")
def allocator_settings_fit(settings: Settings, gpus: int) -> Result:
    """No expandable_segments:True: vLLM's sleep mode, by which verl frees its memory, asserts that it is off."""
    for name in _ALLOCATORS:
        value = settings.environ.get(name, "")
        if "expandable_segments:true" in value.replace(" ", "").lower():
            return Result(
                "fail",
                f"{name}={value}: vLLM's memory pool for its sleep mode refuses it.",
                f"Take expandable_segments out of {name}; verl turns it on itself where it can.",
                "expandable_segments unset or False",
            )
    return OK
