"""Checks the login node; lists the nodes that a job's checks found bad."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from slurm.errors import NoRecord

ROOT = Path(__file__).parents[2]


def here(words: Sequence[str]) -> int:
    """Check this machine with what the nodes are checked with, in a process of its own; return its exit code."""
    packages = os.pathsep.join(filter(None, [str(ROOT / "entrypoints"), os.environ.get("PYTHONPATH", "")]))
    argv = [sys.executable, "-m", "verl_node.checks", *words]
    return subprocess.run(argv, env={**os.environ, "PYTHONPATH": packages}, check=False).returncode


def exclusion(job: str) -> str:
    """Return sbatch's flag that leaves out the nodes which a job's checks found bad, empty where none is.

    ``job`` is its number, below the folder from which it was submitted, or its run directory. Raises NoRecord.
    """
    place = Path(job) if not job.isdigit() else Path("verljob") / job
    found = sorted([*place.glob("checks.json"), *place.glob("attempt-*/checks.json")], key=_attempt)
    if not found:
        raise NoRecord(f"{place.resolve()} has no checks.json: name a job submitted from here, or its run directory")
    return str(json.loads(found[-1].read_text())["exclude"])


def _attempt(file: Path) -> int:
    number = file.parent.name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0
