"""Settings for an environment without flash-attn: attention by PyTorch (sdpa), no removal of padding, fused kernels.

verl's default is flash_attention_2 in every release, and packing rows without padding relies on it. From 0.6 on
`override_config.attn_implementation` replaces it (verl/workers/fsdp_workers.py, later verl/workers/config/model.py),
except for the critic, which verl_node.training.critic_attention loads. flash-attn also computes the log-probabilities.
Without it verl 0.9 loops over all tokens (verl/utils/torch_functional.py, logprobs_from_logits_v2): about 20 s for
320 answers of 1024 tokens on an H100, in place of 5.6 s with verl's fused kernels (docs/images.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata

from verl_node.settings.overrides import Override
from verl_node.training import releases

FIRST_WITH_CHOICE = (0, 6)
FIRST_WITH_A_LOOP = (0, 9)
POLICY = "actor_rollout_ref.model"
NOTE = (
    "flash-attn is not installed: attention is PyTorch's sdpa, and padding is not removed, which costs memory and time "
    "with answers of different lengths."
)


def flash_attn_installed() -> bool:
    """Whether this Python has flash-attn 2; it is not imported, which would need a GPU's driver.

    The module's name does not decide: flash-attn-4, which SGLang's images have, is a part of the module flash_attn.
    """
    try:
        metadata.distribution("flash-attn")
    except metadata.PackageNotFoundError:
        return False
    return True


def overrides_without_flash_attn(series: str, model_keys: Iterable[str]) -> list[Override]:
    """Return the overrides for the models whose paths these keys set.

    None for a release with flash_attention_2 hard-coded, nor for a trainer whose configuration has no such model.
    """
    release = releases.series_of(series)
    if release < FIRST_WITH_CHOICE:
        return []
    overrides = []
    for model in (key.removesuffix(".path") for key in model_keys):
        overrides.append(Override("", f"{model}.use_remove_padding", "False"))
        overrides.append(Override("+", f"{model}.override_config.attn_implementation", "sdpa"))
        if model == POLICY and release >= FIRST_WITH_A_LOOP:
            overrides.append(Override("", f"{model}.use_fused_kernels", "True"))
    return overrides
