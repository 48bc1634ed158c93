"""Health checks of the login node; the bad nodes of a job as a flag of sbatch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from slurm.errors import NoRecord

ROOT = Path(__file__).parents[2]


def check_host(flags: Sequence[str]) -> int:
    """Run the nodes' checks on this machine, in a subprocess; return its exit code."""
    packages = os.pathsep.join(filter(None, [str(ROOT / "entrypoints"), os.environ.get("PYTHONPATH", "")]))
    argv = [sys.executable, "-m", "verl_node.checks", *flags]
    return subprocess.run(argv, env={**os.environ, "PYTHONPATH": packages}, check=False).returncode


def exclusion(job: str) -> str:
    """Return sbatch's flag that excludes the nodes with failed checks, empty if there are none.

    ``job`` is a number, for a job submitted from the current folder, or a run directory. Raises NoRecord.
    """
    folder = Path(job) if not job.isdigit() else Path("verljob") / job
    files = sorted([*folder.glob("checks.json"), *folder.glob("attempt-*/checks.json")], key=_attempt)
    if not files:
        raise NoRecord(f"{folder.resolve()} has no checks.json: name a job submitted from here, or its run directory")
    return str(json.loads(files[-1].read_text())["exclude"])


def _attempt(file: Path) -> int:
    number = file.parent.name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0
