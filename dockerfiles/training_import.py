"""Imports what a training imports, and reports how vLLM and verl would run on ROCm; guard.py uses it.

A build has no GPU. An ImportError ends a training on every machine; another error may come from the GPU that is missing
here, and is reported as not proved. The first deep check of a node (`doctor --deep`) repeats these imports on its GPUs.

Needs Python 3.8.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# A stand-in base (tests/image/standins) lists here the modules that its stubs do not have.
STUBBED = Path("/opt/standin/cannot-import")
DEVICES = ("/dev/nvidiactl", "/dev/kfd")
# NVIDIA's container toolkit mounts them from the host: no image has them.
DRIVER_LIBRARIES = ("libcuda.so", "libnvidia-ml.so")
WITHOUT_GPU = (RuntimeError, AssertionError, OSError)  # raised by torch, triton, aiter and vLLM
VLLM_ROLLOUT = "verl.workers.rollout.vllm_rollout"


def stubbed(module: str) -> bool:
    """Whether this base is a stand-in without this module."""
    names = STUBBED.read_text(encoding="utf-8").split() if STUBBED.exists() else []
    return module in names or module.partition(".")[0] in names


def failure(module: str) -> BaseException | None:
    """Import a module; return what it raises, which may be anything, also SystemExit."""
    try:
        importlib.import_module(module)
    except BaseException as error:
        return error
    return None


def sentence(module: str, error: BaseException) -> str:
    """Describe a failed import."""
    return f"import {module}: {type(error).__name__}: {' '.join(str(error).split())}"


def may_need_gpu(error: BaseException) -> bool:
    """Whether this error may come from the GPU or the driver that this machine does not have."""
    if any(os.path.exists(device) for device in DEVICES):
        return False
    if isinstance(error, ImportError):
        return any(library in str(cause) for cause in _chain(error) for library in DRIVER_LIBRARIES)
    return isinstance(error, WITHOUT_GPU)


def rocm_facts() -> Iterator[str]:
    """Yield a line about vLLM's sleep mode, and one about verl's way to use vLLM if this release has several."""
    if stubbed("verl"):
        yield "NOT TRIED: vLLM's sleep mode, verl's vllm_mode: this base is a stand-in"
        return
    yield f"vLLM on ROCm: {sleep_mode()}"
    if mode := vllm_mode():
        yield f"verl's vllm_mode: {mode}"


def sleep_mode() -> str:
    """Return the answer of vLLM's ROCm platform, which vLLM itself does not choose on a machine without a GPU."""
    if (error := failure("vllm.platforms.interface")) is not None:
        return f"not known: {sentence('vllm.platforms.interface', error)}"
    platform = _rocm_platform(importlib.import_module("vllm.platforms.interface"))
    if not hasattr(platform, "is_sleep_mode_available"):
        return "this version has no sleep mode"
    return f"current_platform.is_sleep_mode_available() is {platform.is_sleep_mode_available()}"


def vllm_mode() -> str:
    """Return verl's `vllm_mode` (up to verl 0.4: customized or spmd); empty for a release without it, or unknown."""
    if failure(VLLM_ROLLOUT) is not None:
        return ""
    return str(getattr(importlib.import_module(VLLM_ROLLOUT), "vllm_mode", ""))


def _rocm_platform(interface: Any) -> Any:
    """Return vLLM's own ROCm platform; if that needs a GPU, one with the defaults of all platforms."""
    if failure("vllm.platforms.rocm") is None:
        return importlib.import_module("vllm.platforms.rocm").RocmPlatform()
    return type("RocmPlatform", (interface.Platform,), {"_enum": interface.PlatformEnum.ROCM})()


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
