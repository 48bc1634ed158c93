"""The first failure of a job, from what it left: the reading is verl_node's, which runs in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from slurm.errors import CommandFailed, NothingToExplain

ENTRYPOINTS = Path(__file__).parents[1] / "entrypoints"
BEGIN, END = "<!-- rules: begin -->", "<!-- rules: end -->"
_RUN_FOLDER = re.compile(r"^run folder  (.+)$", re.MULTILINE)  # slurm/lib/announce.sh
_HEAD_BYTES = 65536


def explain(what: str, *, folder: Path, as_json: bool = False) -> str:
    """Return the explanation of a job's number, a log, or a folder with logs.

    :param folder: where the job was submitted, or anywhere: Slurm is asked where it was, as long as it remembers.
    :raises NothingToExplain: there is nothing of that job here, or no log in what was named.
    """
    return _run("verl_node.explain", [str(_find(what, folder)), *(["--json"] if as_json else [])])


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


def _find(what: str, folder: Path) -> Path:
    """Return the run directory of a job's newest attempt, else its output; or the path as it is."""
    if not what.isdigit() or Path(what).exists():
        return Path(what)
    for place in _places(what, folder):
        for output in sorted(place.glob(f"slurm-*{what}.out")):
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


def _places(job: str, folder: Path) -> Iterator[Path]:
    yield folder
    if shutil.which("scontrol"):
        told = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True, check=False).stdout
        for name in ("WorkDir", "StdOut"):
            found = re.search(rf"^ +{name}=(.+)$", told, re.MULTILINE)
            if found:
                yield Path(found[1]) if name == "WorkDir" else Path(found[1]).parent
