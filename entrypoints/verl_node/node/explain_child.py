"""Explains a failed training in a child process; launch.sh prints the result before its last line."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from verl_node.reporting.masking import masked
from verl_node.reporting.verdict import Verdict, write_by_rename
from verl_node.supervision.child import Process
from verl_node.supervision.waiting import Deadline, within

TIMEOUT_S = 2.0
"""What it may take of a job's end; the reading itself stops a little before."""
_READING_S = 1.2
# Where Ray did not start or the cluster did not form, and when training ended by itself, the logs know more than the
# verdict; a node that was lost knows no more and has its end to make.
_CODES = (71, 75)


def wanted(verdict: Verdict) -> bool:
    """Tell whether the logs may know more of a failure than its verdict."""
    by_itself = verdict.stage == "train" and verdict.origin == "self" and verdict.code != 0
    return by_itself or verdict.code in _CODES


async def leave(run_dir: Path, ray_temp_dir: Path) -> str:
    """Write the file ``explanation``; return in words what kept it from being written, empty where nothing did.

    A process of its own reads, since a file system that does not answer must not hold up the end.
    """
    argv = [sys.executable, "-m", "verl_node.explain", str(run_dir), "--processes", "1", "--limit-s", str(_READING_S)]
    logs = ray_temp_dir / "session_latest" / "logs"
    argv += ["--beside", str(logs)] if logs.is_dir() else []
    packages = str(Path(__file__).parents[2])
    told: list[str] = []
    env = {"PYTHONPATH": packages, "PATH": os.defpath}
    process = await Process.start("explanation", argv, env, on_line=told.append)
    try:
        code = await within(Deadline(TIMEOUT_S), process.ended())
    except asyncio.TimeoutError:
        process.kill()
        return f"the logs were not read in {TIMEOUT_S:.0f} s"
    if code:
        return f"the logs could not be explained: {masked(' | '.join(told))[-200:]}"
    try:
        write_by_rename(run_dir / "explanation", "".join(f"{line}\n" for line in told))
    except OSError as error:
        return f"the explanation could not be written: {error.strerror}"
    return ""
