"""Resumes a training from the newest complete checkpoint of its job."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from verl_node.errors import InputUnavailable
from verl_node.reporting import files
from verl_node.reporting.verdict import write_by_rename
from verl_node.settings.overrides import literal
from verl_node.training import checkpoints
from verl_node.training.checkpoints import Found
from verl_node.training.recipe import Training

RESUME_KEYS = ("trainer.resume_mode", "trainer.resume_from_path")


def continued(training: Training, attempt: int, *, shared: bool = False) -> Training:
    """The same training from the newest whole checkpoint in its folder, or as it is where there is none.

    verl's own resume_mode=auto follows one file, which may name a checkpoint that was never finished. Newer ones that
    are torn are renamed: verl would write new shards between their old ones. Who says trainer.resume_mode in the recipe
    or an override decides alone. Raises InputUnavailable where the folder cannot be read: no training begins anew
    because a file system was away; and PermissionMissing where another account may have written into it, unless the
    account's group has it ``shared`` on purpose.
    """
    if any(word.lstrip("+").startswith(RESUME_KEYS) for word in training.argv):
        return replace(training, notes=[*training.notes, "trainer.resume_mode is given: no checkpoint is looked for."])
    try:
        found = _newest(training.checkpoints, shared)
        notes = [f"checkpoint {path.name} {problem}: it is not used" for path, problem in found.torn.items()]
        notes += _set_aside(training.checkpoints, found, attempt)
    except OSError as error:
        raise InputUnavailable(
            f"The checkpoints in {training.checkpoints} cannot be read: {error}.",
            fix="Look at that file system; VERLJOB_CHECKPOINTS names another folder.",
        ) from error
    return replace(training, argv=training.argv + _words(found), notes=[*training.notes, *notes, *_said(found)])


def _newest(folder: Path, shared: bool) -> Found:
    """The newest whole checkpoint. Nothing of the folder is read before it is known whose it is."""
    if shared or not folder.exists():
        return checkpoints.newest(folder)
    latest = folder / checkpoints.LATEST
    checkpoints.require_own([folder.resolve(), *([latest] if os.path.lexists(latest) else [])])
    found = checkpoints.newest(folder)
    checkpoints.require_own(files.tree(found.path) if found.path else [])
    return found


def _words(found: Found) -> list[str]:
    if found.path is not None:
        return ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={literal(str(found.path))}"]
    return ["trainer.resume_mode=disable"] if found.torn else []


def _said(found: Found) -> list[str]:
    if found.path is not None:
        return [f"training goes on from step {found.step}: {found.path}"]
    return ["no checkpoint is whole: training begins anew"] if found.torn else []


def _set_aside(folder: Path, found: Found, attempt: int) -> list[str]:
    """Give torn checkpoints another name, and let the trainer's own note name what is there; return what went wrong."""
    problems = []
    for path in found.torn:
        aside = path.with_name(f"{path.name}.torn-{attempt}")
        try:
            path.rename(aside)
        except OSError as error:
            problems.append(f"{path.name} could not be renamed to {aside.name}: {error.strerror}")
    latest = folder / checkpoints.LATEST
    try:
        if found.torn and found.path is not None:
            write_by_rename(latest, str(found.step))
        elif found.torn and latest.exists():
            latest.unlink()
    except OSError as error:
        problems.append(f"{latest} could not be corrected: {error.strerror}")
    return problems
