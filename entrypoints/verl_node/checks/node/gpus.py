"""The job's GPUs: free, healthy, at full clocks, and supported by the image."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import lru_cache, wraps

from verl_node.checks.check import check
from verl_node.checks.result import IDLE, OK, Result
from verl_node.gpu import platforms, status, visible_devices
from verl_node.gpu.platforms import GIB
from verl_node.gpu.status import GpuState, NoAnswer
from verl_node.settings.identity import installed
from verl_node.settings.settings import Settings

TIMEOUT_S = 12.0  # without its persistence daemon NVIDIA's driver takes seconds to wake up eight GPUs
# NVIDIA, "CUDA Compatibility", table 1: the oldest driver for an application of each major release.
LEAST_DRIVER = {13: (580,), 12: (525,), 11: (450,)}
# CUDA 13 compiles for Turing and later (its release notes).
LEAST_CAPABILITY = {13: (7, 5)}
_lock = threading.Lock()


def look(settings: Settings, gpus: int) -> list[GpuState]:
    """Return the job's GPUs. All checks share one look at a time; raises NoAnswer."""
    with _lock:
        found = _look(settings.platform)
    mask = visible_devices.kept(settings.environ, gpus=gpus, visible=len(found))
    return visible_devices.named(found, [gpu.name for gpu in found], mask) if mask else found


@lru_cache(maxsize=1)
def _look(platform: str) -> list[GpuState]:
    return status.read_status(platform, TIMEOUT_S)


def _of_gpus(ask: Callable[..., Result]) -> Callable[..., Result]:
    """Have a check asked only where the platform has GPUs and the job some, and left to `driver_answers` else."""

    @wraps(ask)
    def asked(settings: Settings, gpus: int, *threshold: float) -> Result:
        if not platforms.find(settings.platform).devices or gpus == 0:
            return IDLE
        try:
            return ask(settings, gpus, *threshold)
        except NoAnswer:
            return IDLE

    return asked


@check("slurm-container", limit_s=TIMEOUT_S)
def driver_answers(settings: Settings, gpus: int) -> Result:
    """The driver tells of as many GPUs as the job has on this node."""
    if not platforms.find(settings.platform).devices or gpus == 0:
        return IDLE
    fix = "Look at `dmesg` on that node for Xid or amdgpu errors; exclude it: sbatch --exclude."
    try:
        seen = len(look(settings, gpus))
    except NoAnswer as error:
        return Result("fail", f"{error}.", fix, f"{gpus} GPUs")
    if seen < gpus:
        return Result("fail", f"The driver tells of {seen} GPUs.", fix, f"{gpus}, as the job has")
    return OK


@check("vllm", threshold=2.0, limit_s=TIMEOUT_S)
@_of_gpus
def memory_is_free(settings: Settings, gpus: int, most_gib: float) -> Result:
    """Nobody else holds memory of the job's GPUs: vLLM measures what is free when it starts, and fails later."""
    busy = [gpu for gpu in look(settings, gpus) if gpu.used > most_gib * GIB]
    if not busy:
        return OK
    told = ", ".join(f"{gpu.name} {gpu.used / GIB:.1f} of {gpu.total / GIB:.0f} GiB" for gpu in busy)
    return Result(
        "fail",
        f"GPU memory is in use before the job has begun: {told}.",
        "See whose it is in the line `host.gpus_are_idle` of that node, end it, or exclude the node.",
        f"at most {most_gib:g} GiB",
    )


@check("slurm-container", threshold=0.0, limit_s=TIMEOUT_S)
@_of_gpus
def memory_is_sound(settings: Settings, gpus: int, most: float) -> Result:
    """No uncorrected memory errors (ECC, RAS) since the driver was loaded, and no row that waits for a reset."""
    found = look(settings, gpus)
    told = [f"{gpu.name} {gpu.uncorrected} uncorrected errors" for gpu in found if gpu.uncorrected > most]
    if settings.platform == "cuda":
        rows = status.remapped(TIMEOUT_S)
        told += [f"{gpu.name}: {rows[gpu.name]}" for gpu in found if gpu.name in rows]
    if not told:
        return OK
    return Result(
        "fail", f"{'; '.join(told)}.", "Have the GPU reset or replaced; exclude the node: sbatch --exclude.", "none"
    )


@check("slurm-container", severity="warn", limit_s=TIMEOUT_S)
@_of_gpus
def clocks_are_not_held_down(settings: Settings, gpus: int) -> Result:
    """No GPU is slowed down for its temperature or its power supply: the slowest GPU is the job's pace."""
    slow = [f"{gpu.name} {', '.join(gpu.slow)}" for gpu in look(settings, gpus) if gpu.slow]
    if not slow:
        return OK
    return Result("warn", f"{'; '.join(slow)}.", "Look at cooling and power; exclude the node meanwhile.", "full speed")


@check("image", limit_s=TIMEOUT_S)
@_of_gpus
def driver_fits_the_image(settings: Settings, gpus: int) -> Result:
    """NVIDIA's driver is new enough for the CUDA that the image's torch was built with."""
    cuda = _cuda()
    least = LEAST_DRIVER.get(cuda)
    driver = next((gpu.driver for gpu in look(settings, gpus)), "")
    if settings.platform != "cuda" or least is None or _numbers(driver) >= least:
        return OK
    return Result(
        "fail",
        f"The driver is {driver} and the image's torch {installed('torch')} is for CUDA {cuda}.",
        "Use an image for an older CUDA, or have the driver updated.",
        f"driver {least[0]} or later",
    )


@check("image", limit_s=TIMEOUT_S)
@_of_gpus
def architecture_fits_the_image(settings: Settings, gpus: int) -> Result:
    """The GPUs are of an architecture that the image was compiled for, as its own variables say."""
    kinds = sorted({gpu.architecture for gpu in look(settings, gpus) if gpu.architecture})
    built = settings.environ.get("PYTORCH_ROCM_ARCH" if settings.platform == "rocm" else "TORCH_CUDA_ARCH_LIST", "")
    fits = _fits_rocm if settings.platform == "rocm" else _fits_cuda
    wrong = [kind for kind in kinds if not fits(kind, built)]
    if not wrong:
        return OK
    return Result(
        "fail",
        f"The GPUs are {', '.join(wrong)}, and the image has no code for them.",
        "Use an image that was built for them: invoke image.list lists the variants.",
        built or f"compute capability {'.'.join(map(str, LEAST_CAPABILITY.get(_cuda(), (0, 0))))} or later",
    )


def _fits_rocm(kind: str, built: str) -> bool:
    return not built or kind in re.split("[;, ]+", built)


def _fits_cuda(kind: str, built: str) -> bool:
    """Code for 8.0 runs on 8.6, not on 9.0; with +PTX it is compiled there. 9.0a is for 9.0 alone."""
    capability = _numbers(kind)
    if capability < LEAST_CAPABILITY.get(_cuda(), (0, 0)):
        return False
    for word in re.split("[;, ]+", built.strip()) if built.strip() else []:
        target = _numbers(word.rstrip("abcdefghijklmnopqrstuvwxyz"))
        if word.endswith("+PTX") and _numbers(word[:-4]) <= capability:
            return True
        if target[:1] == capability[:1] and target <= capability:
            return True
    return not built.strip()


def _cuda() -> int:
    """Return the major release of the CUDA that torch was built with, 0 where it does not say: 2.11.0+cu130 is 13."""
    found = re.search(r"\+cu(\d+)\d$", installed("torch"))
    return int(found[1]) if found else 0


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
