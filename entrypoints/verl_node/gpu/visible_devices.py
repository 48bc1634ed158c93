"""Visible-device variables: at most one, under the name that this platform's Ray reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from verl_node.errors import BadSettings, CheckFailed
from verl_node.gpu import platforms
from verl_node.versions import Version

T = TypeVar("T")
# Slurm writes ROCR, Ray ≥ 2.45 refuses it and writes HIP, verl writes CUDA even on ROCm, images preset any of them.
MASKS = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
# verl takes any value of these, also 0, for "Ray sets no mask" (verl/utils/ray_utils.py); some base images preset them.
NOSET = tuple(f"RAY_EXPERIMENTAL_NOSET_{name}" for name in MASKS[:3])
# Slurm's word, Ray's, and CUDA's and HIP's for a mask that names no GPU at all.
_NO_GPU = ("NoDevFiles", "none", "void", "-1")


def visible_devices(platform: str) -> int:
    """Return how many GPUs of this platform the node gives this process; none on a platform without devices.

    Where none of those that are there may be opened, all count: the node's check says whose group is missing.
    """
    table = platforms.find(platform)
    return len(table.usable_devices() or table.visible_devices())


def offered(environ: Mapping[str, str], *, platform: str) -> int:
    """Return how many GPUs the node gives where nobody says: those that its mask names, else all that it shows.

    Raises BadSettings where several masks differ.
    """
    visible, given = visible_devices(platform), _given(environ)
    if not visible or not given:
        return visible
    if len(set(given.values())) > 1:
        raise BadSettings(
            f"The masks {_told(given)} differ, and nothing says how many GPUs are meant.",
            fix="Leave one mask, or say how many GPUs there are (sbatch --gpus-per-node, node --gpus).",
        )
    return min(visible, len(_entries(next(iter(given.values())))))


def one_mask(environ: Mapping[str, str], *, platform: str, gpus: int, visible: int, ray: Version) -> dict[str, str]:
    """Return the environment with every mask removed, or only one left.

    Where the node shows exactly the job's GPUs, as a container of node.sh does, the devices are the mask: numbers in a
    variable are those of the host and would be applied to the wrong list. Where it shows more (by hand, or without a
    container), the one mask that somebody gave is kept under the name that Ray reads. Raises BadSettings where several
    differ, or name another number of GPUs than the job has.
    """
    clean = {name: value for name, value in environ.items() if name not in (*MASKS, *NOSET)}
    mask = kept(environ, gpus=gpus, visible=visible)
    return {**clean, platforms.find(platform).mask(ray): mask} if mask else clean


def kept(environ: Mapping[str, str], *, gpus: int, visible: int) -> str:
    """Return the mask that `one_mask` keeps, empty for none. Raises BadSettings as it does."""
    given = _given(environ)
    if visible <= gpus or not given:
        return ""
    mask = next(iter(given.values()))
    if len(set(given.values())) > 1 or len(_entries(mask)) != gpus:
        raise BadSettings(
            f"The masks {_told(given)} do not name the same {gpus} of the {visible} GPUs that this node shows.",
            fix="Leave one mask with as many entries as GPUs, or unset all of them.",
        )
    return mask


def named(found: Sequence[T], names: Sequence[str], mask: str) -> list[T]:
    """Return those that a mask names, by number or by the first digits of a UUID, in its order."""
    return [
        one
        for entry in mask.split(",")
        for number, (one, name) in enumerate(zip(found, names))
        if entry == str(number) or (name and not entry.isdigit() and name.startswith(entry))
    ]


def require_one(seen: Mapping[str, str], *, platform: str, gpus: int, ray: Version, host: str) -> None:
    """Hold what an actor with every GPU of a node saw against the policy: one mask, Ray's own, an entry a GPU.

    A second mask is applied on top of the first and leaves fewer GPUs, or none; verl refuses it late, in other words.
    Raises CheckFailed.
    """
    name = platforms.find(platform).mask(ray)
    if gpus == 0 or (list(seen) == [name] and len(set(seen[name].split(","))) == gpus):
        return
    told = _told(seen) or "no mask"
    raise CheckFailed(
        f"A Ray actor with all {gpus} GPUs of {host} saw {told}, and {name} alone with {gpus} entries was wanted.",
        fix="Masks are removed before Ray starts: look for what sets one again, such as a sitecustomize of Python.",
        host=host,
    )


def _given(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in MASKS if environ.get(name)}


def _entries(mask: str) -> list[str]:
    return [] if mask in _NO_GPU else mask.split(",")


def _told(masks: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in masks.items())
