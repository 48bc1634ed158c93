"""Commit and version of a verl checkout that replaces the image's verl, read without git."""

from __future__ import annotations

from pathlib import Path

from verl_node.errors import BadSettings


def commit(checkout: Path) -> str:
    """Return the commit that is checked out, empty where there is no .git. Raises BadSettings."""
    git = checkout / ".git"
    if not git.exists():
        return ""
    try:
        if git.is_file():  # a worktree or submodule: `gitdir: PATH`
            git = checkout / git.read_text().partition(":")[2].strip()
        head = (git / "HEAD").read_text().strip()
        return _resolve(git, head[len("ref:") :].strip()) if head.startswith("ref:") else head
    except OSError as error:
        raise BadSettings(
            f"The commit of VERLJOB_VERL={checkout} cannot be read: {error}.",
            fix="Mount the whole checkout with its .git.",
        ) from error


def version(checkout: Path) -> str:
    """Return verl's version as the checkout states it. Raises BadSettings where it is no verl."""
    stated = checkout / "verl" / "version" / "version"
    try:
        return stated.read_text().strip()
    except OSError as error:
        raise BadSettings(
            f"VERLJOB_VERL={checkout} is no verl checkout: {stated} cannot be read.",
            fix="Name the folder that holds verl's setup.py, by a path that every node sees.",
        ) from error


def _resolve(git: Path, reference: str) -> str:
    shared = git / "commondir"
    folders = [git, git / shared.read_text().strip()] if shared.is_file() else [git]
    for folder in folders:
        if (folder / reference).is_file():
            return (folder / reference).read_text().strip()
    for folder in folders:
        packed = folder / "packed-refs"
        for line in packed.read_text().splitlines() if packed.is_file() else []:
            value, _, name = line.partition(" ")
            if name == reference:
                return value
    raise FileNotFoundError(f"{reference} is neither a file nor in packed-refs")
