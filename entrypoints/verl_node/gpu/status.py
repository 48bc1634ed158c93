"""GPU state for the checks, from one call of nvidia-smi or the files of AMD's driver."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_node.gpu import kfd, platforms

MIB = 1 << 20
# The reasons why a GPU runs slower that are faults of the machine; a power cap or idleness is none.
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
    """One GPU as its driver tells; sizes in bytes, ``uncorrected`` errors since the driver was loaded."""

    name: str
    model: str
    driver: str
    architecture: str
    total: int
    used: int
    uncorrected: int
    slow: tuple[str, ...]


class NoAnswer(Exception):
    """The driver's tool is missing or failed; the words are its own."""


def read_status(platform: str, timeout_s: float) -> list[GpuState]:
    """Return the GPUs that this process may use. Raises NoAnswer."""
    if platform == "cuda":
        return _of_nvidia(timeout_s)
    table = platforms.find(platform)
    usable = {Path(device).name for device in table.usable_devices()}
    return list(_of_amd(usable)) if table.use_files else []


def ask(command: tuple[str, ...], timeout_s: float) -> str:
    """Run a driver's tool. Raises NoAnswer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    except OSError as error:
        raise NoAnswer(f"{command[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(f"{command[0]} gave no answer in {timeout_s:.0f} s") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise NoAnswer(f"{command[0]} ended with {done.returncode}: {said[-1] if said else 'it said nothing'}")
    return done.stdout


def remapped(timeout_s: float) -> dict[str, str]:
    """Return what is wrong with the rows of each NVIDIA GPU's memory, by UUID; without an entry where it is sound."""
    found = {}
    for line in ask(REMAPPED, timeout_s).splitlines():
        uuid, pending, failure = (field.strip() for field in line.split(","))
        if failure == "Yes":
            found[uuid] = "a row of its memory could not be replaced"
        elif pending == "Yes":
            found[uuid] = "a row of its memory waits to be replaced by a reset"
    return found


def _of_nvidia(timeout_s: float) -> list[GpuState]:
    found = []
    for line in ask(NVIDIA_SMI, timeout_s).splitlines():
        _, uuid, model, driver, capability, total, used, uncorrected, *slow = map(str.strip, line.split(","))
        reasons = tuple(name for name, state in zip(SLOW, slow) if state == "Active")
        memory = (_number(total) * MIB, _number(used) * MIB)
        found.append(GpuState(uuid, model, driver, capability, *memory, _number(uncorrected), reasons))
    return found


def _of_amd(usable: set[str]) -> Iterator[GpuState]:
    """Those whose render node was given to this process, in HIP's order (kernel documentation, gpu/amdgpu).

    A partition has a card of its own, with none of these files: its card's are told once, with the first.
    """
    driver = _text(Path("/sys/module/amdgpu/version"))
    architectures = kfd.architectures()
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
    """Return each render node with the device that it is of."""
    for device in Path("/").glob(str(Path(platforms.DRM).relative_to("/"))):
        yield from ((node.name, device) for node in device.glob("drm/renderD*"))


def _uncorrected(file: Path) -> int:
    """Read ``ue: 0`` and ``ce: 0``, a line each."""
    pairs = [line.split(":") for line in _text(file).splitlines() if ":" in line]
    return next((_number(value) for key, value in pairs if key.strip() == "ue"), 0)


def _hot(device: Path) -> bool:
    """temp2 is the junction's, in thousandths of a degree."""
    for sensor in device.glob("hwmon/hwmon*"):
        now, limit = _number(_text(sensor / "temp2_input")), _number(_text(sensor / "temp2_crit"))
        if limit and now >= limit:
            return True
    return False


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # of another driver, or of none
        return ""


def _number(text: str) -> int:
    """Drivers say [N/A] where a GPU has no such counter."""
    return int(text) if text.strip().isdigit() else 0
