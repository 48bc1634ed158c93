"""GPU state for the checks, from one call of nvidia-smi or the files of AMD's driver."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_node.gpu import platforms

MIB = 1 << 20
# Reasons for lower clocks that are faults; a power cap or an idle GPU is not.
SLOW = ("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")
_FIELDS = (
    "index",
    "uuid",
    "name",
    "driver_version",
    "compute_cap",
    "memory.total",
    "memory.used",
    "ecc.errors.uncorrected.volatile.total",
    *(f"clocks_throttle_reasons.{reason}" for reason in SLOW),
)
NVIDIA_SMI = ("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
REMAPPED = (
    "nvidia-smi",
    "--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure",
    "--format=csv,noheader",
)
TOPOLOGY = ("nvidia-smi", "topo", "-m")
_RAS = ("umc", "sdma", "gfx", "mmhub", "xgmi_wafl")


@dataclass(frozen=True)
class GpuState:
    """State of a GPU; sizes in bytes, ``uncorrected`` errors since the driver was loaded."""

    name: str
    model: str
    driver: str
    architecture: str
    total: int
    used: int
    uncorrected: int
    slow: tuple[str, ...]


class NoAnswer(Exception):
    """The driver's tool is missing or failed; the text has its error message."""


def read_status(platform: str, timeout_s: float) -> list[GpuState]:
    """Return the GPUs that this process can use. Raises NoAnswer."""
    if platform == "cuda":
        return _nvidia_gpus(timeout_s)
    table = platforms.find(platform)
    usable = {Path(device).name for device in table.usable_devices()}
    return list(_amd_gpus(usable)) if table.use_files else []


def run_tool(command: tuple[str, ...], timeout_s: float) -> str:
    """Run a driver's tool. Raises NoAnswer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    except OSError as error:
        raise NoAnswer(f"{command[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(f"{command[0]} did not answer within {timeout_s:.0f} s") from error
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip().splitlines()
        raise NoAnswer(f"{command[0]} exited with {done.returncode}: {output[-1] if output else 'no error message'}")
    return done.stdout


def remapped_rows(timeout_s: float) -> dict[str, str]:
    """Return the problem with the memory rows of each NVIDIA GPU that has one, by UUID."""
    found = {}
    for line in run_tool(REMAPPED, timeout_s).splitlines():
        uuid, pending, failure = (field.strip() for field in line.split(","))
        if failure == "Yes":
            found[uuid] = "a row of its memory could not be replaced"
        elif pending == "Yes":
            found[uuid] = "a row of its memory waits to be replaced by a reset"
    return found


def _nvidia_gpus(timeout_s: float) -> list[GpuState]:
    found = []
    for line in run_tool(NVIDIA_SMI, timeout_s).splitlines():
        _, uuid, model, driver, capability, total, used, uncorrected, *slow = map(str.strip, line.split(","))
        reasons = tuple(name for name, state in zip(SLOW, slow) if state == "Active")
        memory = (_number(total) * MIB, _number(used) * MIB)
        found.append(GpuState(uuid, model, driver, capability, *memory, _number(uncorrected), reasons))
    return found


def _amd_gpus(usable: set[str]) -> Iterator[GpuState]:
    """Yield the GPUs whose render node this process can use, in HIP's order (kernel documentation, gpu/amdgpu).

    Each partition is a card without these files: those of the whole card are reported once, with the first partition.
    """
    driver = _text(Path("/sys/module/amdgpu/version"))
    architectures = platforms.kfd_architectures()
    cards = dict(_cards())
    for node in [*architectures, *sorted(cards.keys() - architectures)]:
        device = cards.get(node)
        if device is None or node not in usable:
            continue
        yield GpuState(
            name=node,
            model=_text(device / "product_name") or _text(device / "device"),
            driver=driver,
            architecture=architectures.get(node, ""),
            total=_number(_text(device / "mem_info_vram_total")),
            used=_number(_text(device / "mem_info_vram_used")),
            uncorrected=sum(_uncorrected(device / "ras" / f"{block}_err_count") for block in _RAS),
            slow=("over its critical temperature",) if _hot(device) else (),
        )


def _cards() -> Iterator[tuple[str, Path]]:
    """Yield each render node with its device."""
    for device in Path("/").glob(str(Path(platforms.DRM).relative_to("/"))):
        yield from ((node.name, device) for node in device.glob("drm/renderD*"))


def _uncorrected(file: Path) -> int:
    """Return 1 for the lines ``ue: 1`` and ``ce: 2``."""
    pairs = [line.split(":") for line in _text(file).splitlines() if ":" in line]
    return next((_number(value) for key, value in pairs if key.strip() == "ue"), 0)


def _hot(device: Path) -> bool:
    """temp2 is the junction temperature, in thousandths of a degree."""
    for sensor in device.glob("hwmon/hwmon*"):
        now, limit = _number(_text(sensor / "temp2_input")), _number(_text(sensor / "temp2_crit"))
        if limit and now >= limit:
            return True
    return False


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # another driver, or none
        return ""


def _number(text: str) -> int:
    """Drivers print [N/A] if a GPU does not have the counter."""
    return int(text) if text.strip().isdigit() else 0
