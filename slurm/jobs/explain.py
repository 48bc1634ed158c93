"""Explains a failed job from its files, with verl_node.explain in a subprocess."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from slurm.errors import CommandFailed, NothingToExplain

ENTRYPOINTS = Path(__file__).parents[2] / "entrypoints"
_RUN_FOLDER = re.compile(r"^run folder  (.+)$", re.MULTILINE)  # slurm/lib/launch/main.sh
_HEAD_BYTES = 65536
FAILED = ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")
"""Slurm's states (squeue(1)) of a job that has a failure, even if its log shows none."""


def explain(target: str, *, folder: Path, as_json: bool = False, failed: bool = False) -> str:
    """Return the explanation of a job's number, a log, or a folder with logs.

    :param folder: the submit folder. Another folder works as long as Slurm remembers the job.
    :param failed: the job is known to have failed. For a number Slurm is queried.
    :raises NothingToExplain: no file of the job was found, or the target contains no log.
    """
    path = Path(target)
    if target.isdigit() and not path.exists():
        path, failed = _find(target, folder), failed or _has_failed(target)
    flags = [*(["--failed"] if failed else []), *(["--json"] if as_json else [])]
    argv = [sys.executable, "-m", "verl_node.explain", str(path), *flags]
    environ = {**os.environ, "PYTHONPATH": str(ENTRYPOINTS)}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 64:
        raise NothingToExplain(done.stderr.strip())
    if done.returncode:
        raise CommandFailed(argv, done.returncode, done.stdout + done.stderr)
    return done.stdout.rstrip("\n")


def _find(number: str, folder: Path) -> Path:
    """Return the run directory of a job's newest attempt, else its output."""
    for candidate in _folders(folder, number):
        for output in sorted(path for path in candidate.glob("slurm-*.out") if path.stem.rpartition("-")[2] == number):
            with output.open(encoding="utf-8", errors="replace") as file:
                named = _RUN_FOLDER.findall(file.read(_HEAD_BYTES))
            run_dir = Path(named[-1]) if named else output
            return run_dir if run_dir.exists() else output
        if (candidate / "verljob" / number).is_dir():
            return candidate / "verljob" / number
    raise NothingToExplain(
        f"Nothing of job {number} was found: no slurm-*-{number}.out and no verljob/{number} in {folder}, and Slurm "
        "does not know where it ran. Go to the folder from which it was submitted, or name its output or run directory."
    )


def _folders(folder: Path, number: str) -> Iterator[Path]:
    """Yield the folders that may have a job's files: the current one, then those where Slurm ran and wrote it.

    Not read from `scontrol show job`, where a job's name, arguments and comment may look like other fields.
    """
    yield folder
    work_dir = _squeue(number, "--format=%Z")
    if work_dir:
        yield Path(work_dir)
        yield Path(work_dir, _squeue(number, "--Format=STDOUT:4096")).parent


def _has_failed(number: str) -> bool:
    """Return whether Slurm calls a job failed: slurmctld, or the accounting if slurmctld has forgotten the job."""
    state = _squeue(number, "--format=%T")
    if state:
        return state in FAILED
    argv = ("sacct", "--noheader", "--allocations", f"--jobs={number}", "--format=State")
    return _query(*argv).strip().startswith(FAILED)


def _squeue(number: str, field: str) -> str:
    """Return one field of a job, the first one of an array; empty if slurmctld does not know the job."""
    return _query("squeue", "--noheader", "--states=all", f"--jobs={number}", field).partition("\n")[0].rstrip()


def _query(*argv: str) -> str:
    """Return the output of a command of Slurm; empty without Slurm."""
    if not shutil.which(argv[0]):
        return ""
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout
