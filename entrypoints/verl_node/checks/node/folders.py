"""Folders that a job writes to."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from verl_node.checks.check import check
from verl_node.checks.result import OK, Result
from verl_node.settings.settings import Settings

_MIN_INODES = 10_000  # a job's logs and a model's cache take thousands
_MOVED_BY = "VERLJOB_LOCAL, VERLJOB_RUN_DIR"


@check("debug-logs", limit_s=10)
def run_directory_is_writable(settings: Settings, gpus: int) -> Result:
    """Every node can write to the run directory, for its verdict and its checkpoint shards."""
    if settings.run_dir is None:
        return OK
    return _writable(settings.run_dir, "Set VERLJOB_RUN_DIR to a folder that this account can write on every node.")


@check("hf-cache", limit_s=10)
def home_is_writable(settings: Settings, gpus: int) -> Result:
    """HOME is writable, for caches of Hugging Face, Triton and wandb."""
    return _writable(settings.home, "Give the container a HOME that it can write (-e HOME=…).")


@check("ray-gcs", limit_s=10)
def temporary_folder_is_writable(settings: Settings, gpus: int) -> Result:
    """The temporary folder is writable, for Ray's sockets and logs."""
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
    """A worker sees launch.sh's files in the run directory, so all nodes share checkpoints."""
    folder = settings.run_dir
    if folder is None or not settings.joins or settings.standalone or (folder / "overrides").exists():
        return OK
    return Result(
        "warn",
        f"{folder} on this node is not the head's: its logs and its part of each checkpoint stay on this node.",
        "Set VERLJOB_RUN_DIR and VERLJOB_CHECKPOINTS to folders on a file system that all nodes share.",
        "launch.sh's file `overrides`",
    )


@check("slurm-container", threshold=0.125)
def folders_have_room(settings: Settings, gpus: int, least_gib: float) -> Result:
    """The temporary folder, the run directory and HOME have space and inodes for a job's logs."""
    folders = [settings.ray_temp_dir.parent, settings.run_dir, settings.home]
    for folder in filter(None, folders):
        found = shortage(folder, least_gib)
        if found:
            return Result("fail", found, f"Free space in it, or move it: {_MOVED_BY}.", f"{least_gib:g} GiB")
    return OK


def shortage(folder: Path, least_gib: float) -> str:
    """Return a sentence if a folder is short of space or inodes, else an empty string."""
    existing = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if existing is None:
        return ""
    found = os.statvfs(existing)
    gib = found.f_frsize * found.f_bavail / (1 << 30)
    if gib < least_gib:
        return f"{folder} has {gib:.1f} GiB left."
    if found.f_files and found.f_favail < _MIN_INODES:
        return f"{folder} has {found.f_favail} inodes left of {found.f_files}."
    return ""
