"""Explains a failed job from its files, with verl_node.explain in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from slurm.errors import CommandFailed, NothingToExplain

ENTRYPOINTS = Path(__file__).parents[2] / "entrypoints"
BEGIN, END = "<!-- rules: begin -->", "<!-- rules: end -->"
_RUN_FOLDER = re.compile(r"^run folder  (.+)$", re.MULTILINE)  # slurm/lib/launch/announce.sh
_HEAD_BYTES = 65536
FAILED = ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")
"""Slurm's states (squeue(1)) of a job whose log has a failure, whether it says so or not."""


def explain(what: str, *, folder: Path, as_json: bool = False, failed: bool = False) -> str:
    """Return the explanation of a job's number, a log, or a folder with logs.

    :param folder: where the job was submitted, or anywhere: Slurm is asked where it was, as long as it remembers.
    :param failed: it is known that the job did; of a number Slurm is asked.
    :raises NothingToExplain: there is nothing of that job here, or no log in what was named.
    """
    path = Path(what)
    if what.isdigit() and not path.exists():
        job = _asked("scontrol", "show", "job", what)
        path, failed = _find(what, folder, job), failed or _failed(what, job)
    words = [*(["--failed"] if failed else []), *(["--json"] if as_json else [])]
    return _run("verl_node.explain", [str(path), *words])


def page() -> str:
    """Return the part of docs/troubleshooting.md that the rules make."""
    return _run("verl_node.explain.page", [])


def write_page(file: Path) -> Path:
    """Write the rules' part of a page anew, between its marks, and return the file."""
    text = file.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise NothingToExplain(f"{file} has no lines {BEGIN} and {END}, between which the rules are written.")
    file.write_text(f"{before}{begin}\n{page()}\n{end}{after}", encoding="utf-8")
    return file


def _run(module: str, words: Sequence[str]) -> str:
    argv = [sys.executable, "-m", module, *words]
    environ = {**os.environ, "PYTHONPATH": str(ENTRYPOINTS)}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 64:
        raise NothingToExplain(done.stderr.strip())
    if done.returncode:
        raise CommandFailed(argv, done.returncode, done.stdout + done.stderr)
    return done.stdout.rstrip("\n")


def _find(what: str, folder: Path, job: str) -> Path:
    """Return the run directory of a job's newest attempt, else its output; ``job`` is what scontrol shows of it."""
    for place in _places(folder, job):
        for output in sorted(path for path in place.glob("slurm-*.out") if path.stem.rpartition("-")[2] == what):
            with output.open(encoding="utf-8", errors="replace") as file:
                named = _RUN_FOLDER.findall(file.read(_HEAD_BYTES))
            run_dir = Path(named[-1]) if named else output
            return run_dir if run_dir.exists() else output
        if (place / "verljob" / what).is_dir():
            return place / "verljob" / what
    raise NothingToExplain(
        f"Nothing of job {what} was found: no slurm-*-{what}.out and no verljob/{what} in {folder}, and Slurm does not "
        "know where it ran. Go to the folder from which it was submitted, or name its output or run directory."
    )


def _places(folder: Path, job: str) -> Iterator[Path]:
    yield folder
    for name in ("WorkDir", "StdOut"):
        found = re.search(rf"^ +{name}=(.+)$", job, re.MULTILINE)
        if found:
            yield Path(found[1]) if name == "WorkDir" else Path(found[1]).parent


def _failed(what: str, job: str) -> bool:
    """Tell whether Slurm calls a job failed: slurmctld, or the accounting where that has forgotten it."""
    state = re.search(r"^ +JobState=(\w+)", job, re.MULTILINE)
    if state:
        return state[1] in FAILED
    return _asked("sacct", "--noheader", "--allocations", f"--jobs={what}", "--format=State").strip().startswith(FAILED)


def _asked(*argv: str) -> str:
    """Return what Slurm answers; empty without Slurm, or where it does not know."""
    if not shutil.which(argv[0]):
        return ""
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout
