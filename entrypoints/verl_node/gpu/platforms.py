"""Facts about each vendor's platform that verl_node needs, in one table.

How their containers start is slurm/platforms/*.env; what the two share is the name.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from verl_node.gpu import kfd
from verl_node.versions import Version

GIB = 1 << 30
OLDEST: Version = (0, 0)
DRM = "/sys/class/drm/card[0-9]*/device"


@dataclass(frozen=True)
class Platform:
    """One vendor's GPUs; sizes in bytes."""

    devices: str
    """Pattern of the device nodes; empty where a GPU is a word of Ray's alone."""
    control: tuple[str, ...]
    """Devices without which no GPU can be used, however many of the others there are."""
    masks: tuple[tuple[Version, str], ...]
    """Which mask Ray sets in a worker and reads at its start, from which version of Ray on; newest first."""
    declared_gpus: int
    """GPUs that a node has when nobody says how many and no device tells."""
    open_files: int
    """Ray opens some 20 files a worker process on the head, and stops accepting at the limit (verl#2047, verl#3642)."""
    shared: tuple[int, int]
    """Shared memory: below the first a job fails, below the second it is slow. Docker's default is 64 MiB, which NCCL
    does not survive ("Error while creating shared memory segment", EasyR1#228); on CPU Ray turns to the disk."""
    locks_memory: bool
    """RDMA registers GPU buffers as locked memory ("ibv_reg_mr … Cannot allocate memory", nccl-tests#206)."""

    use_files: tuple[str, ...] = ()
    """Patterns of the driver's files with a GPU's use in percent and its used memory in bytes, side by side."""
    use_command: tuple[str, ...] = ()
    """What prints a line a GPU: UUID, use in percent, used memory in MiB."""
    memory_files: str = ""
    """Pattern of the driver's files with a GPU's whole memory in bytes."""
    memory_command: tuple[str, ...] = ()
    """What prints a line a GPU: its whole memory in MiB."""
    asks_kfd: bool = False
    """There are more device nodes than GPUs."""

    def visible_devices(self) -> list[str]:
        """Return the device nodes of GPUs that this node shows; of AMD's, those that its compute driver calls GPUs."""
        shown = [path for path in sorted(glob(self.devices)) if not _masked(path)] if self.devices else []
        gpus = kfd.architectures() if shown and self.asks_kfd else {}
        return [device for device in shown if Path(device).name in gpus] or shown

    def usable_devices(self) -> list[str]:
        """Return those that this process may open: a device cgroup (Slurm's ConstrainDevices) leaves the others."""
        return [device for device in self.visible_devices() if os.access(device, os.R_OK | os.W_OK)]

    def mask(self, ray: Version) -> str:
        """Return the name of the one mask that this Ray sets and reads."""
        return next(name for since, name in self.masks if ray >= since)


def _masked(path: str) -> bool:
    """A container runtime hides a path by mounting /dev/null over it (`maskedPaths`, OCI runtime specification)."""
    return os.path.exists(path) and os.stat(path).st_rdev == os.stat(os.devnull).st_rdev


PLATFORMS = {
    "cpu": Platform(
        devices="",
        control=(),
        masks=((OLDEST, "CUDA_VISIBLE_DEVICES"),),  # Ray takes a GPU that it cannot find for NVIDIA's
        declared_gpus=1,  # a worker process of verl stands for it, and one fits anywhere
        open_files=4096,
        shared=(0, GIB),
        locks_memory=False,
    ),
    "cuda": Platform(
        devices="/dev/nvidia[0-9]*",
        control=("/dev/nvidiactl", "/dev/nvidia-uvm"),
        masks=((OLDEST, "CUDA_VISIBLE_DEVICES"),),
        declared_gpus=0,
        open_files=65536,
        shared=(8 * GIB, 32 * GIB),
        locks_memory=True,
        use_command=("nvidia-smi", "--query-gpu=uuid,utilization.gpu,memory.used", "--format=csv,noheader,nounits"),
        memory_command=("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"),
    ),
    "rocm": Platform(
        devices="/dev/dri/renderD*",
        control=("/dev/kfd",),
        # ray/_private/accelerators/amd_gpu.py. verl moves either to CUDA_VISIBLE_DEVICES in its workers, which vLLM
        # reads there (verl/single_controller/base/worker.py).
        masks=(((2, 45), "HIP_VISIBLE_DEVICES"), (OLDEST, "ROCR_VISIBLE_DEVICES")),
        declared_gpus=0,
        open_files=65536,
        shared=(8 * GIB, 32 * GIB),
        locks_memory=True,
        # Kernel documentation, gpu/amdgpu/thermal and driver-misc.
        use_files=(f"{DRM}/gpu_busy_percent", f"{DRM}/mem_info_vram_used"),
        memory_files=f"{DRM}/mem_info_vram_total",
        asks_kfd=True,
    ),
}


def find(name: str) -> Platform:
    """Return a platform by its name; a site's own, of which only slurm/platforms knows, is taken for the CPU's."""
    return PLATFORMS.get(name, PLATFORMS["cpu"])
