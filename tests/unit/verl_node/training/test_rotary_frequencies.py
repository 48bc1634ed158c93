"""The frequencies of rotary embeddings stay in float32 when verl converts a model; torch is a fake one."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from verl_node.settings.overrides import merge, parse
from verl_node.training import derived_overrides, external_modules, recipe

from tests.support.paths import RECIPES

MODULE = "verl_node.training.rotary_frequencies"


@dataclass(frozen=True)
class Tensor:
    dtype: str
    device: str = "cpu"
    digits: int = 24

    def to(self, device: str) -> Tensor:
        return replace(self, device=device)


class Rotary:
    """Like torch.nn.Module: _apply replaces each buffer by what the function returns for it."""

    def __init__(self, **buffers: Tensor | None) -> None:
        self._buffers = buffers

    def _apply(self, function: Any, recurse: bool = True) -> Rotary:
        self._buffers = {name: buffer and function(buffer) for name, buffer in self._buffers.items()}
        return self


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> type[Rotary]:
    """A class of modules after the import of the module."""
    own = type("Own", (Rotary,), {"_apply": Rotary._apply})
    torch, nn = ModuleType("torch"), ModuleType("torch.nn")
    monkeypatch.setattr(nn, "Module", own, raising=False)
    monkeypatch.setattr(torch, "nn", nn, raising=False)
    monkeypatch.setattr(torch, "float32", "float32", raising=False)
    for name, each in (("torch", torch), ("torch.nn", nn)):
        monkeypatch.setitem(sys.modules, name, each)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    importlib.import_module(MODULE)
    monkeypatch.delitem(sys.modules, MODULE)
    return own


def to_half(buffer: Tensor) -> Tensor:
    return Tensor("bfloat16", "cuda:0", 8)


def test_a_conversion_keeps_the_frequencies_and_moves_them(module: type[Rotary]) -> None:
    rotary = module(inv_freq=Tensor("float32"), original_inv_freq=None, other=Tensor("float32"))

    assert rotary._apply(to_half) is rotary
    assert rotary._buffers == {
        "inv_freq": Tensor("float32", "cuda:0"),
        "original_inv_freq": None,
        "other": Tensor("bfloat16", "cuda:0", 8),
    }


def test_frequencies_of_another_type_and_other_changes_stay_as_they_are(module: type[Rotary]) -> None:
    rotary = module(inv_freq=Tensor("bfloat16"), original_inv_freq=Tensor("float32"))

    rotary._apply(lambda buffer: replace(buffer, device="meta"))

    assert rotary._buffers == {
        "inv_freq": Tensor("bfloat16", "meta"),
        "original_inv_freq": Tensor("float32", "meta"),
    }


@pytest.mark.parametrize(
    ("overrides", "series", "modules"),
    [
        (["actor_rollout_ref.actor.fsdp_config.model_dtype=bfloat16"], (0, 9), [external_modules.ROTARY_FREQUENCIES]),
        (["critic.fsdp.model_dtype=fp16"], (0, 6), [external_modules.ROTARY_FREQUENCIES]),
        (["critic.fsdp.model_dtype=fp16"], (0, 5), []),
        (["critic.fsdp.model_dtype=fp32"], (0, 9), []),
        (["critic.fsdp.model_dtype=32"], (0, 9), []),
        (["critic.fsdp.model_dtype=null"], (0, 9), []),
        ([], (0, 9), []),
    ],
)
def test_a_model_that_is_trained_in_half_precision_gets_the_module(
    overrides: list[str], series: tuple[int, ...], modules: list[str]
) -> None:
    merged = merge(map(parse, overrides))

    assert derived_overrides.worker_modules(series, merged, without_flash_attn=False) == modules


def test_the_job_says_so_and_keeps_the_modules_of_the_user() -> None:
    training = recipe.make_training(
        recipe.load(RECIPES / "gsm8k_grpo.yaml"),
        ["actor_rollout_ref.actor.fsdp_config.model_dtype=bf16"],
        verl_version="0.9.1",
        nodes=1,
        gpus_per_node=1,
        run_dir=Path("/runs/1"),
        data_dir=Path("/data"),
        given_modules="mine",
    )

    assert training.env[external_modules.NAME] == f"mine,{external_modules.ROTARY_FREQUENCIES}"
    assert external_modules.ROTARY_NOTE in training.notes
