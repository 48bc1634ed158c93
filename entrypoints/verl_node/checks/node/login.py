"""Checks of a login node, before there is an allocation."""

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
    """Slurm's controller answers here, and has nodes that take jobs."""
    try:
        done = subprocess.run(
            ["sinfo", "--noheader", "--format=%t %D"], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Result("fail", f"sinfo: {error}.", "Log in to a node with Slurm's client.", "Slurm's client")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        return Result("fail", f"sinfo ended with {done.returncode}: {said[0]}.", "Ask the site; is slurmctld up?")
    states = [line.split()[0] for line in done.stdout.splitlines() if line.split()]
    if not any(state.startswith(("idle", "mix", "alloc", "comp")) for state in states):
        return Result("warn", f"No node takes jobs: {', '.join(states) or 'none is listed'}.", "Look at `sinfo -R`.")
    return OK


@check("slurm-container", limit_s=10)
def paths_are_shared(settings: Settings, gpus: int) -> Result:
    """Nothing that nodes will look for lies on this machine alone: an image's archive, a model, the submit folder."""
    for name in ("VERLJOB_IMAGE", "VERLJOB_MODEL", "VERLJOB_RUN_DIR", "VERLJOB_DATA", "HF_HOME"):
        path = settings.environ.get(name, "")
        if path.startswith("/tmp/") or path.startswith("/dev/shm/"):  # noqa: S108
            return Result(
                "warn", f"{name}={path} is on this machine alone.", f"Move it to a shared folder and set {name}."
            )
    return OK


@check("image", limit_s=10)
def files_that_are_named_exist(settings: Settings, gpus: int) -> Result:
    """The image's archive, the model, the data source and the checkout of verl that were named as paths are there."""
    for name in ("VERLJOB_IMAGE", "VERLJOB_MODEL", "VERLJOB_DATA_SOURCE", "VERLJOB_VERL", "VERLJOB_PROFILE"):
        path = settings.environ.get(name, "")
        if path.startswith("/") and not os.access(path, os.R_OK):
            what = "cannot be read by this account" if Path(path).exists() else "is not there"
            return Result("fail", f"{name}={path} {what}.", f"Correct {name}, or unset it.", "a path that is there")
    return OK
