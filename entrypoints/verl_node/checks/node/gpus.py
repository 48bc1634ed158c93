"""The job's GPUs: visible, free, healthy, at full clocks, and supported by the image."""

from __future__ import annotations

import os
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
OLDEST_DRIVER = {13: (580,), 12: (525,), 11: (450,)}
# CUDA 13 compiles for Turing and later (its release notes).
OLDEST_CAPABILITY = {13: (7, 5)}
_lock = threading.Lock()


def job_gpus(settings: Settings, gpus: int) -> list[GpuState]:
    """Return the state of the job's GPUs, queried once for all checks. Raises NoAnswer."""
    with _lock:
        states = _query(settings.platform)
    mask = visible_devices.kept_mask(settings.environ, gpus=gpus, visible=len(states))
    return visible_devices.select(states, [gpu.name for gpu in states], mask) if mask else states


@lru_cache(maxsize=1)
def _query(platform: str) -> list[GpuState]:
    return status.read_status(platform, TIMEOUT_S)


def job_has_gpus(settings: Settings, gpus: int) -> bool:
    """Whether the job has GPUs, and the platform has devices for them."""
    return bool(platforms.find(settings.platform).devices) and gpus > 0


def _needs_gpus(run: Callable[..., Result]) -> Callable[..., Result]:
    """Skip a check without GPUs or an answer of the driver, which `driver_answers` reports."""

    @wraps(run)
    def run_with_gpus(settings: Settings, gpus: int, *threshold: float) -> Result:
        if not job_has_gpus(settings, gpus):
            return IDLE
        try:
            return run(settings, gpus, *threshold)
        except NoAnswer:
            return IDLE

    return run_with_gpus


@check("slurm-container", group="devices")
def gpus_are_visible(settings: Settings, gpus: int) -> Result:
    """This account can open as many devices as the job has GPUs.

    More devices may be visible: Slurm's device cgroup closes those of other jobs and leaves their nodes in place.
    """
    if not job_has_gpus(settings, gpus):
        return IDLE
    platform = platforms.find(settings.platform)
    absent = [device for device in platform.control if not os.path.exists(device)]
    visible = platform.visible_devices()
    if absent or len(visible) < gpus:
        missing = f"; {', '.join(absent)} is missing" if absent else ""
        return Result(
            "fail",
            f"{len(visible)} GPU devices are visible, {gpus} are the job's{missing}.",
            f"Pass them into the container; compare with `ls -l {' '.join(platform.control)} {platform.devices}`.",
        )
    usable = platform.usable_devices()
    closed = [device for device in platform.control if not os.access(device, os.R_OK | os.W_OK)]
    closed += [device for device in visible if device not in usable] if len(usable) < gpus else []
    if closed:
        return Result(
            "permission",
            f"{', '.join(closed)} may not be opened by uid {os.getuid()} with the groups {os.getgroups()}.",
            "Add the device's numeric group to the container: --group-add $(stat -c %g DEVICE).",
        )
    return OK


@check("slurm-container", limit_s=TIMEOUT_S)
def driver_answers(settings: Settings, gpus: int) -> Result:
    """The driver lists as many GPUs as the job has on this node."""
    if not job_has_gpus(settings, gpus):
        return IDLE
    fix = "Check `dmesg` on that node for Xid or amdgpu errors; exclude it: sbatch --exclude."
    try:
        count = len(job_gpus(settings, gpus))
    except NoAnswer as error:
        return Result("fail", f"{error}.", fix, f"{gpus} GPUs")
    if count < gpus:
        return Result("fail", f"The driver lists {count} GPUs.", fix, f"{gpus}, as the job has")
    return OK


@check("vllm", threshold=2.0, limit_s=TIMEOUT_S)
@_needs_gpus
def memory_is_free(settings: Settings, gpus: int, most_gib: float) -> Result:
    """No other process holds memory of the job's GPUs, which makes vLLM fail."""
    busy = [gpu for gpu in job_gpus(settings, gpus) if gpu.used > most_gib * GIB]
    if not busy:
        return OK
    used = ", ".join(f"{gpu.name} {gpu.used / GIB:.1f} of {gpu.total / GIB:.0f} GiB" for gpu in busy)
    return Result(
        "fail",
        f"GPU memory is in use before the job has begun: {used}.",
        "Find its owner in that node's line `host.gpus_are_idle` and end the process, or exclude the node.",
        f"at most {most_gib:g} GiB",
    )


@check("slurm-container", threshold=0.0, limit_s=TIMEOUT_S)
@_needs_gpus
def memory_is_sound(settings: Settings, gpus: int, most: float) -> Result:
    """No uncorrected memory errors (ECC, RAS) since the driver was loaded, no row waits for a reset."""
    states = job_gpus(settings, gpus)
    faults = [f"{gpu.name} {gpu.uncorrected} uncorrected errors" for gpu in states if gpu.uncorrected > most]
    if settings.platform == "cuda":
        rows = status.remapped_rows(TIMEOUT_S)
        faults += [f"{gpu.name}: {rows[gpu.name]}" for gpu in states if gpu.name in rows]
    if not faults:
        return OK
    return Result(
        "fail", f"{'; '.join(faults)}.", "Have the GPU reset or replaced; exclude the node: sbatch --exclude.", "none"
    )


@check("slurm-container", severity="warn", limit_s=TIMEOUT_S)
@_needs_gpus
def clocks_are_not_held_down(settings: Settings, gpus: int) -> Result:
    """No GPU is slowed down by its temperature or its power supply."""
    slow = [f"{gpu.name} {', '.join(gpu.slow)}" for gpu in job_gpus(settings, gpus) if gpu.slow]
    if not slow:
        return OK
    return Result("warn", f"{'; '.join(slow)}.", "Check cooling and power; exclude the node meanwhile.", "full speed")


@check("image", limit_s=TIMEOUT_S)
@_needs_gpus
def driver_fits_the_image(settings: Settings, gpus: int) -> Result:
    """NVIDIA's driver is new enough for the CUDA that the image's torch was built with."""
    cuda = _cuda_of_torch()
    oldest = OLDEST_DRIVER.get(cuda)
    driver = next((gpu.driver for gpu in job_gpus(settings, gpus)), "")
    if settings.platform != "cuda" or oldest is None or _numbers(driver) >= oldest:
        return OK
    return Result(
        "fail",
        f"The driver is {driver} and the image's torch {installed('torch')} is for CUDA {cuda}.",
        "Use an image for an older CUDA, or have the driver updated.",
        f"driver {oldest[0]} or later",
    )


@check("image", limit_s=TIMEOUT_S)
@_needs_gpus
def architecture_fits_the_image(settings: Settings, gpus: int) -> Result:
    """The image was compiled for the architecture of the GPUs, according to its own variables."""
    kinds = sorted({gpu.architecture for gpu in job_gpus(settings, gpus) if gpu.architecture})
    built = settings.environ.get("PYTORCH_ROCM_ARCH" if settings.platform == "rocm" else "TORCH_CUDA_ARCH_LIST", "")
    fits = _fits_rocm if settings.platform == "rocm" else _fits_cuda
    wrong = [kind for kind in kinds if not fits(kind, built)]
    if not wrong:
        return OK
    return Result(
        "fail",
        f"The GPUs are {', '.join(wrong)}, and the image has no code for them.",
        "Use an image that was built for them: invoke image.list lists the variants.",
        built or f"compute capability {'.'.join(map(str, OLDEST_CAPABILITY.get(_cuda_of_torch(), (0, 0))))} or later",
    )


def _fits_rocm(kind: str, built: str) -> bool:
    return not built or kind in re.split("[;, ]+", built)


def _fits_cuda(kind: str, built: str) -> bool:
    """Code for 8.0 runs on 8.6, not on 9.0; +PTX is compiled on the GPU. 9.0a runs only on 9.0."""
    capability = _numbers(kind)
    if capability < OLDEST_CAPABILITY.get(_cuda_of_torch(), (0, 0)):
        return False
    for entry in re.split("[;, ]+", built.strip()) if built.strip() else []:
        target = _numbers(entry.rstrip("abcdefghijklmnopqrstuvwxyz"))
        if entry.endswith("+PTX") and _numbers(entry[:-4]) <= capability:
            return True
        if target[:1] == capability[:1] and target <= capability:
            return True
    return not built.strip()


def _cuda_of_torch() -> int:
    """Return the major release of torch's CUDA (13 for 2.11.0+cu130), 0 if it is unknown."""
    found = re.search(r"\+cu(\d+)\d$", installed("torch"))
    return int(found[1]) if found else 0


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
