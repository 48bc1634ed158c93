"""Table of the GPU platforms, and the device nodes of a node's GPUs.

slurm/platforms/*.env has the options of their containers; both use the same platform names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from verl_node.versions import Version

GIB = 1 << 30
OLDEST: Version = (0, 0)
DRM = "/sys/class/drm/card[0-9]*/device"
KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")


@dataclass(frozen=True)
class Platform:
    """One vendor's GPUs; sizes in bytes."""

    devices: str
    """Pattern of the device nodes; empty if GPUs are only declared to Ray."""
    control: tuple[str, ...]
    """Devices without which no GPU can be used."""
    masks: tuple[tuple[Version, str], ...]
    """Ray's mask for workers, by the first version of Ray that uses it; newest first."""
    declared_gpus: int
    """Number of GPUs of a node if neither the settings nor devices give one."""
    open_files: int
    """Ray opens some 20 files a worker process on the head, and stops accepting at the limit (verl#2047, verl#3642)."""
    shared: tuple[int, int]
    """Shared memory in bytes: below the first a job fails, below the second it is slow. With Docker's default of 64 MiB
    NCCL fails ("Error while creating shared memory segment", EasyR1#228); on CPU Ray uses the disk instead."""
    locks_memory: bool
    """RDMA registers GPU buffers as locked memory ("ibv_reg_mr … Cannot allocate memory", nccl-tests#206)."""

    use_files: tuple[str, ...] = ()
    """Patterns of the driver's files, in one folder: use in percent, used memory in bytes."""
    use_command: tuple[str, ...] = ()
    """Command that prints a line per GPU: UUID, use in percent, used memory in MiB."""
    memory_files: str = ""
    """Pattern of the driver's files with a GPU's total memory in bytes."""
    memory_command: tuple[str, ...] = ()
    """Command that prints a line per GPU: its total memory in MiB."""
    uses_kfd: bool = False
    """Whether AMD's compute driver decides which device nodes are GPUs."""

    def visible_devices(self) -> list[str]:
        """Return the device nodes of GPUs; of AMD's, those that the compute driver lists."""
        shown = [path for path in sorted(glob(self.devices)) if not _masked(path)] if self.devices else []
        gpus = kfd_architectures() if shown and self.uses_kfd else {}
        return [device for device in shown if Path(device).name in gpus] or shown

    def usable_devices(self) -> list[str]:
        """Return those that this process can open; a device cgroup closes the others."""
        return [device for device in self.visible_devices() if os.access(device, os.R_OK | os.W_OK)]

    def mask(self, ray: Version) -> str:
        """Return the name of the mask that this version of Ray sets and reads."""
        return next(name for since, name in self.masks if ray >= since)


def _masked(path: str) -> bool:
    """A container runtime hides a path by mounting /dev/null over it (`maskedPaths`, OCI runtime specification)."""
    return os.path.exists(path) and os.stat(path).st_rdev == os.stat(os.devnull).st_rdev


PLATFORMS = {
    "cpu": Platform(
        devices="",
        control=(),
        masks=((OLDEST, "CUDA_VISIBLE_DEVICES"),),  # Ray treats a declared GPU without a device as NVIDIA's
        declared_gpus=1,  # each is one worker process of verl, and one fits on any node
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
        # ray/_private/accelerators/amd_gpu.py. In its workers verl moves the mask to CUDA_VISIBLE_DEVICES, which vLLM
        # reads (verl/single_controller/base/worker.py).
        masks=(((2, 45), "HIP_VISIBLE_DEVICES"), (OLDEST, "ROCR_VISIBLE_DEVICES")),
        declared_gpus=0,
        open_files=65536,
        shared=(8 * GIB, 32 * GIB),
        locks_memory=True,
        # Kernel documentation, gpu/amdgpu/thermal and driver-misc.
        use_files=(f"{DRM}/gpu_busy_percent", f"{DRM}/mem_info_vram_used"),
        memory_files=f"{DRM}/mem_info_vram_total",
        uses_kfd=True,
    ),
}


def find(name: str) -> Platform:
    """Return a platform by its name; one that a site added to slurm/platforms is treated as cpu."""
    return PLATFORMS.get(name, PLATFORMS["cpu"])


def kfd_architectures() -> dict[str, str]:
    """Return the gfx name of each AMD GPU by its render node, in HIP's order; empty without AMD's compute driver.

    An MI300X has eight render nodes for its possible partitions, and is one GPU until it is partitioned. /dev/dri and
    /sys/class/drm list all of them (ROCm/rocDecode#38, ROCm/k8s-device-plugin#157), this driver lists only GPUs; it
    hides those that a device cgroup closes. gfx_target_version 90402 is gfx942, the last digit in hexadecimal (90010
    is gfx90a); a CPU has 0.
    """
    found = {}
    for node in sorted(KFD_NODES.glob("[0-9]*"), key=lambda node: int(node.name)):
        try:
            lines = (node / "properties").read_text().splitlines()
        except OSError:  # EPERM: a GPU of another job
            continue
        properties = dict(line.split(maxsplit=1) for line in lines if " " in line)
        version = int(properties.get("gfx_target_version", "0"))
        if version:
            major, minor, step = version // 10000, version // 100 % 100, version % 100
            found[f"renderD{properties.get('drm_render_minor', '')}"] = f"gfx{major}{minor:x}{step:x}"
    return found
