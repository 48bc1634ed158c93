"""Folders that a job writes into."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from verl_node.checks.check import check
from verl_node.checks.result import OK, Result
from verl_node.settings.settings import Settings

_LEAST_INODES = 10_000  # a job's logs and a model's cache take thousands
_MOVED_BY = "VERLJOB_LOCAL, VERLJOB_RUN_DIR"


@check("debug-logs", limit_s=10)
def run_directory_is_writable(settings: Settings, gpus: int) -> Result:
    """Every node writes its verdict and its shards of checkpoints there."""
    if settings.run_dir is None:
        return OK
    return _writable(settings.run_dir, "Set VERLJOB_RUN_DIR to a folder that this account can write on every node.")


@check("hf-cache", limit_s=10)
def home_is_writable(settings: Settings, gpus: int) -> Result:
    """Caches of Hugging Face, Triton and wandb lie in HOME, which is / for a user without an account."""
    return _writable(settings.home, "Give the container a HOME that it can write (-e HOME=…).")


@check("ray-gcs", limit_s=10)
def temporary_folder_is_writable(settings: Settings, gpus: int) -> Result:
    """Ray's sockets and logs lie there."""
    return _writable(settings.ray_temp_dir.parent, "Mount a writable /tmp, or set VERLJOB_RAY_TEMP_DIR.")


def _writable(folder: Path, fix: str) -> Result:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, probe = tempfile.mkstemp(prefix=".verljob-", dir=folder)
        os.close(descriptor)
        os.unlink(probe)
    except OSError as error:
        return Result("permission", f"{folder} cannot be written by uid {os.getuid()}: {error.strerror}.", fix)
    return OK


@check("debug-logs", severity="warn")
def run_directory_is_shared(settings: Settings, gpus: int) -> Result:
    """A worker sees what launch.sh wrote into the run directory, so checkpoints of all nodes come together."""
    folder = settings.run_dir
    if folder is None or not settings.joins or settings.standalone or (folder / "overrides").exists():
        return OK
    return Result(
        "warn",
        f"{folder} on this node is not the head's: logs stay here, and checkpoints of several nodes do not meet.",
        "Export VERLJOB_RUN_DIR and VERLJOB_CHECKPOINTS=folders on a file system that all nodes share.",
        "the file `overrides` that launch.sh wrote",
    )


@check("slurm-container", threshold=0.125)
def folders_have_room(settings: Settings, gpus: int, least_gib: float) -> Result:
    """The temporary folder, the run directory and HOME have room and inodes; a job of minutes writes 64 MiB of logs."""
    folders = [settings.ray_temp_dir.parent, settings.run_dir, settings.home]
    for folder in filter(None, folders):
        told = full(folder, least_gib)
        if told:
            return Result("fail", told, f"Free space there, or move it: {_MOVED_BY}.", f"{least_gib:g} GiB")
    return OK


def full(folder: Path, least_gib: float) -> str:
    """Return what is short in a folder, space or inodes; empty where both suffice or nobody knows."""
    existing = next((place for place in (folder, *folder.parents) if place.exists()), None)
    if existing is None:
        return ""
    found = os.statvfs(existing)
    gib = found.f_frsize * found.f_bavail / (1 << 30)
    if gib < least_gib:
        return f"{folder} has {gib:.1f} GiB left."
    if found.f_files and found.f_favail < _LEAST_INODES:
        return f"{folder} has {found.f_favail} inodes left of {found.f_files}."
    return ""
