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
from verl_node.training.checkpoints import Newest
from verl_node.training.recipe import Training

RESUME_KEYS = ("trainer.resume_mode", "trainer.resume_from_path")


def resumed(training: Training, attempt: int, *, shared: bool = False) -> Training:
    """Return the training, resumed from the newest complete checkpoint in its folder if there is one.

    verl's own resume_mode=auto follows one file, which may name an unfinished checkpoint. Newer torn checkpoints are
    renamed: verl would mix new shards with their old ones. If the recipe or an override sets trainer.resume_mode,
    nothing is changed. Raises InputUnavailable if the folder cannot be read, since a training must not restart because
    a file system failed; and PermissionMissing if another account may have written to the folder, unless the account's
    group shares it on purpose (``shared``).
    """
    if any(argument.lstrip("+").startswith(RESUME_KEYS) for argument in training.argv):
        return replace(training, notes=[*training.notes, "trainer.resume_mode is set: no checkpoint is searched."])
    try:
        found = _newest(training.checkpoints, shared)
        notes = [f"checkpoint {path.name} {problem}: it is not used" for path, problem in found.torn.items()]
        notes += _set_aside(training.checkpoints, found, attempt)
    except OSError as error:
        raise InputUnavailable(
            f"The checkpoints in {training.checkpoints} cannot be read: {error}.",
            fix="Check that file system, or set VERLJOB_CHECKPOINTS to another folder.",
        ) from error
    return replace(training, argv=training.argv + _overrides(found), notes=[*training.notes, *notes, *_notes(found)])


def _newest(folder: Path, shared: bool) -> Newest:
    """Return the newest complete checkpoint. The owner of each file is checked before it is read."""
    if shared or not folder.exists():
        return checkpoints.newest(folder)
    latest = folder / checkpoints.LATEST
    checkpoints.require_trusted([folder.resolve(), *([latest] if os.path.lexists(latest) else [])])
    found = checkpoints.newest(folder)
    checkpoints.require_trusted(files.tree(found.path) if found.path else [])
    return found


def _overrides(found: Newest) -> list[str]:
    if found.path is not None:
        return ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={literal(str(found.path))}"]
    return ["trainer.resume_mode=disable"] if found.torn else []


def _notes(found: Newest) -> list[str]:
    if found.path is not None:
        return [f"training resumes from step {found.step}: {found.path}"]
    return ["no checkpoint is complete: training starts from the beginning"] if found.torn else []


def _set_aside(folder: Path, found: Newest, attempt: int) -> list[str]:
    """Rename torn checkpoints, correct the trainer's record; return a sentence per failure."""
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
