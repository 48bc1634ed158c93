"""Finds the logs of a job, a folder or a path, in the order of their importance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

LOGS = {".log", ".out", ".err", ".txt", ""}
# Files and folders that are not logs: our own, Ray's state dumps, those of git and Python.
NOT_LOGS = {"verdict", "overrides", "checkpoint", "expires", "bringing", "pulse", "explanation"}
SKIPPED = {"hydra", ".pulls", ".git", "__pycache__", "checkpoints"}


class NothingToRead(Exception):
    """None of the paths is a log or a folder with a log."""


@dataclass(frozen=True)
class Log:
    """A log; ``main`` for the job's own output and node.log, not for Ray's logs."""

    path: Path
    host: str
    main: bool


def collect(paths: Sequence[Path]) -> list[Log]:
    """Return the logs, the head's before those of the workers. Raises NothingToRead."""
    logs = [log for path in paths for log in _logs(path)]
    if not logs:
        named = ", ".join(map(str, paths))
        raise NothingToRead(f"No log in {named}; expected a log, a job's run directory, or a folder with logs.")
    return logs


def beside(paths: Sequence[Path]) -> list[Log]:
    """Return logs of lower importance."""
    return [replace(log, main=False) for path in paths for log in _logs(path)]


def run_dir(path: Path) -> Path:
    """Return the newest attempt in a job's folder, else the folder itself."""
    attempts = [folder for folder in path.glob("attempt-*") if folder.name[8:].isdigit()]
    return max(attempts, key=lambda folder: int(folder.name[8:]), default=path)


def _logs(path: Path) -> Iterator[Log]:
    if not path.is_dir():
        if path.is_file():
            yield Log(path, "", True)
        return
    folder = run_dir(path)
    nodes = sorted((folder / "nodes").glob("*-*"), key=lambda node: (len(node.name.partition("-")[0]), node.name))
    for node in nodes:
        host = node.name.partition("-")[2]
        for file in sorted(node.rglob("*")):
            if _is_log(file, node):
                yield Log(file, host, file.parent == node)
    if not nodes:
        for file in sorted(folder.rglob("*")):
            if _is_log(file, folder):
                yield Log(file, "", True)


def _is_log(file: Path, folder: Path) -> bool:
    return (
        file.suffix in LOGS
        and file.name not in NOT_LOGS
        and not file.name.startswith("stacks-")
        and not SKIPPED & set(file.relative_to(folder).parts)
        and file.is_file()
        and not file.is_symlink()
    )
