"""The CPU as a platform of verl: device ``cpu``, backend ``gloo``, memory and stream calls that return zero."""

from __future__ import annotations

import contextlib
import types
from typing import Any

import torch
import torch.distributed
from verl.plugin.platform import PlatformBase, PlatformRegistry

from verl_cpu import vllm_cpu

MEMORY_BYTES = 1 << 34
"""Result of a memory query, free and total: verl only divides by it to log a share."""


class _Stream:
    """A stream or event on which all work is already done."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def wait(self, *args: Any) -> None: ...

    def record_event(self, *args: Any) -> _Stream:
        return _Stream()

    record = query = synchronize = wait_stream = wait_event = wait


class _DeviceModule(types.ModuleType):
    """``torch.cpu`` with functions of ``torch.cuda`` that verl calls."""

    Event = Stream = _Stream

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> str:
        return "cpu"

    def get_device_name(self, *args: Any) -> str:
        return "cpu"

    def _nothing(self, *args: Any, **kwargs: Any) -> None: ...

    set_device = synchronize = empty_cache = ipc_collect = _nothing
    set_per_process_memory_fraction = reset_peak_memory_stats = _nothing

    def memory_allocated(self, *args: Any) -> int:
        return 0

    memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated

    def mem_get_info(self, *args: Any) -> tuple[int, int]:
        return MEMORY_BYTES, MEMORY_BYTES

    def get_rng_state(self, *args: Any) -> Any:
        return torch.get_rng_state()

    def set_rng_state(self, state: Any, *args: Any) -> None:
        torch.set_rng_state(state)

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """One device per process; Ray counts it as a GPU, declared by ``ray start --num-gpus``."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _DeviceModule("verl_cpu_device")

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None: ...


def _init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
    """verl passes ``cpu:gloo,<device>:<backend>``, and torch rejects a device that occurs twice."""
    return _torch_init_process_group("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)


def _pin_memory(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """verl's reference policy uses FSDP2's CPUOffloadPolicy(pin_memory=True); pinning needs an accelerator."""
    return tensor


_torch_init_process_group = torch.distributed.init_process_group
torch.distributed.init_process_group = _init_process_group
torch.Tensor.pin_memory = _pin_memory
vllm_cpu.install()
