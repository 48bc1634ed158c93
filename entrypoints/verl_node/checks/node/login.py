"""Checks of a login node, before an allocation."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from verl_node.checks.check import check
from verl_node.checks.result import OK, Result
from verl_node.settings.settings import Settings

_TIMEOUT_S = 8.0


@check("slurm-container", limit_s=10)
def slurm_answers(settings: Settings, gpus: int) -> Result:
    """Slurm's controller answers, and has nodes that accept jobs."""
    try:
        done = subprocess.run(
            ["sinfo", "--noheader", "--format=%t %D"], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Result("fail", f"sinfo: {error}.", "Log in to a node with Slurm's client commands.", "a working sinfo")
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no error message"]
        return Result(
            "fail", f"sinfo exited with {done.returncode}: {last[0]}.", "Ask the site whether slurmctld runs."
        )
    states = [line.split()[0] for line in done.stdout.splitlines() if line.split()]
    if not any(state.startswith(("idle", "mix", "alloc", "comp")) for state in states):
        return Result("warn", f"No node accepts jobs: {', '.join(states) or 'no node is listed'}.", "Check `sinfo -R`.")
    return OK


@check("slurm-container", limit_s=10)
def paths_are_shared(settings: Settings, gpus: int) -> Result:
    """Image archive, model, run directory, data and HF_HOME are not local to this machine."""
    for name in ("VERLJOB_IMAGE", "VERLJOB_MODEL", "VERLJOB_RUN_DIR", "VERLJOB_DATA", "HF_HOME"):
        path = settings.environ.get(name, "")
        if path.startswith("/tmp/") or path.startswith("/dev/shm/"):  # noqa: S108
            return Result(
                "warn", f"{name}={path} exists only on this machine.", f"Move it to a shared folder and set {name}."
            )
    return OK


@check("image", limit_s=10)
def files_that_are_named_exist(settings: Settings, gpus: int) -> Result:
    """Image archive, model, data source, verl checkout and profile exist if they are given as paths."""
    for name in ("VERLJOB_IMAGE", "VERLJOB_MODEL", "VERLJOB_DATA_SOURCE", "VERLJOB_VERL", "VERLJOB_PROFILE"):
        path = settings.environ.get(name, "")
        if path.startswith("/") and not os.access(path, os.R_OK):
            what = "cannot be read by this account" if Path(path).exists() else "does not exist"
            return Result("fail", f"{name}={path} {what}.", f"Correct {name}, or unset it.", "an existing path")
    return OK
