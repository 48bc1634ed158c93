"""verl loads PPO's critic with the attention of its configuration, unless that is flash-attn's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

MODULE = "verl_node.training.critic_attention"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return verl's function after the import of the module; it returns the arguments of from_pretrained."""
    model, transformers = ModuleType("verl.utils.model"), ModuleType("transformers")
    auto_class = SimpleNamespace(from_pretrained=lambda path, **arguments: {"path": path, **arguments})
    monkeypatch.setattr(transformers, "AutoModelForTokenClassification", auto_class, raising=False)
    for name, module in (
        ("verl", ModuleType("verl")),
        ("verl.utils", ModuleType("verl.utils")),
        (model.__name__, model),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys.modules["verl.utils"], "model", model, raising=False)
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    importlib.import_module(MODULE)
    monkeypatch.delitem(sys.modules, MODULE)
    loaded: Callable[..., Any] = model.load_valuehead_model
    return loaded


@pytest.mark.parametrize(
    ("configured", "used"), [("flash_attention_2", "sdpa"), ("sdpa", "sdpa"), ("eager", "eager"), (None, "sdpa")]
)
def test_the_critic_is_loaded_without_flash_attn(load: Callable[..., Any], configured: str | None, used: str) -> None:
    config = SimpleNamespace(_attn_implementation=configured)

    arguments = load("/model", "float32", config, False)

    assert arguments == {
        "path": "/model",
        "torch_dtype": "float32",
        "config": config,
        "attn_implementation": used,
        "trust_remote_code": False,
    }
