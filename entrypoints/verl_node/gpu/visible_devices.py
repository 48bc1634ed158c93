"""Masks (variables of visible devices): at most one, under the name that this platform's Ray reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from verl_node.errors import BadSettings, CheckFailed
from verl_node.gpu import platforms
from verl_node.versions import Version

T = TypeVar("T")
# Slurm sets ROCR, Ray ≥ 2.45 rejects it and sets HIP, verl sets CUDA even on ROCm, images preset any of them.
MASKS = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
# verl reads any value of these, even 0, as "Ray sets no mask" (verl/utils/ray_utils.py); some base images preset them.
NOSET = tuple(f"RAY_EXPERIMENTAL_NOSET_{name}" for name in MASKS[:3])
# Slurm's, Ray's, and CUDA's and HIP's value for a mask without any GPU.
_NO_GPU = ("NoDevFiles", "none", "void", "-1")


def visible_devices(platform: str) -> int:
    """Return how many GPUs this process can open; 0 on a platform without devices.

    If it can open none of the existing ones, all of them count: a health check reports the missing group.
    """
    table = platforms.find(platform)
    return len(table.usable_devices() or table.visible_devices())


def offered_gpus(environ: Mapping[str, str], *, platform: str) -> int:
    """Return the number of GPUs if no setting gives one: those in the node's mask, else all visible ones.

    Raises BadSettings if several masks differ.
    """
    visible, given = visible_devices(platform), _given(environ)
    if not visible or not given:
        return visible
    if len(set(given.values())) > 1:
        raise BadSettings(
            f"The masks {_assignments(given)} differ, and no setting gives the number of GPUs.",
            fix="Keep one mask, or set the number of GPUs (sbatch --gpus-per-node, node --gpus).",
        )
    return min(visible, len(_entries(next(iter(given.values())))))


def with_one_mask(
    environ: Mapping[str, str], *, platform: str, gpus: int, visible: int, ray: Version
) -> dict[str, str]:
    """Return the environment with all masks removed, or one kept.

    If exactly the job's GPUs are visible, as in a container of node.sh, no mask is needed: its numbers are those of the
    host and would select from the wrong list. If more are visible (a manual start, or no container), the given mask is
    kept under the name that Ray reads. Raises BadSettings if several masks differ, or have another number of GPUs than
    the job.
    """
    clean = {name: value for name, value in environ.items() if name not in (*MASKS, *NOSET)}
    mask = kept_mask(environ, gpus=gpus, visible=visible)
    return {**clean, platforms.find(platform).mask(ray): mask} if mask else clean


def kept_mask(environ: Mapping[str, str], *, gpus: int, visible: int) -> str:
    """Return the mask that `with_one_mask` keeps, empty for none. Raises BadSettings like it."""
    given = _given(environ)
    if visible <= gpus or not given:
        return ""
    mask = next(iter(given.values()))
    if len(set(given.values())) > 1 or len(_entries(mask)) != gpus:
        raise BadSettings(
            f"The masks {_assignments(given)} do not name the same {gpus} of the {visible} visible GPUs.",
            fix="Keep one mask with as many entries as GPUs, or unset all of them.",
        )
    return mask


def select(gpus: Sequence[T], uuids: Sequence[str], mask: str) -> list[T]:
    """Return the GPUs in a mask, by number or by the first digits of a UUID, in its order."""
    return [
        gpu
        for entry in mask.split(",")
        for number, (gpu, uuid) in enumerate(zip(gpus, uuids))
        if entry == str(number) or (uuid and not entry.isdigit() and uuid.startswith(entry))
    ]


def require_one_mask(seen: Mapping[str, str], *, platform: str, gpus: int, ray: Version, host: str) -> None:
    """Raise CheckFailed unless an actor with all GPUs of a node saw one mask, Ray's own, with an entry per GPU.

    A second mask is applied on top of the first and leaves fewer GPUs, or none; verl fails on it late and unclearly.
    """
    name = platforms.find(platform).mask(ray)
    if gpus == 0 or (list(seen) == [name] and len(set(seen[name].split(","))) == gpus):
        return
    raise CheckFailed(
        f"A Ray actor with all {gpus} GPUs of {host} saw {_assignments(seen) or 'no mask'}; expected: only {name}, "
        f"with {gpus} entries.",
        fix="Masks are removed before Ray starts: find the program that sets one again, such as a sitecustomize.py.",
        host=host,
    )


def _given(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in MASKS if environ.get(name)}


def _entries(mask: str) -> list[str]:
    return [] if mask in _NO_GPU else mask.split(",")


def _assignments(masks: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in masks.items())
