"""Folders that a job writes into."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from verl_node.checks.answer import OK, Result
from verl_node.settings import Settings


def run_directory_is_writable(settings: Settings, gpus: int) -> Result:
    """Every node writes its verdict and its shards of checkpoints there."""
    if settings.run_dir is None:
        return OK
    return _writable(settings.run_dir, "Set VERLJOB_RUN_DIR to a folder that this account can write on every node.")


def home_is_writable(settings: Settings, gpus: int) -> Result:
    """Caches of Hugging Face, Triton and wandb lie in HOME, which is / for a user without an account."""
    return _writable(settings.home, "Give the container a HOME that it can write (-e HOME=…).")


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
