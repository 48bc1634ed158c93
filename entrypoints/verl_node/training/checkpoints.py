"""Checkpoints of verl's trainers: the newest complete one of a folder.

A trainer writes `global_step_N/` with a file per rank (FSDP: `actor/model_world_size_8_rank_3.pt`, …; Megatron:
`dist_ckpt/`), then the data loader's `data.pt`, and last, not by rename, the step into a file beside the folders.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from verl_node.errors import InputUnavailable, PermissionMissing
from verl_node.inputs import weights
from verl_node.reporting import files

LATEST = "latest_checkpointed_iteration.txt"

_FOLDER = re.compile(r"global_step_(\d+)")
_RANKED = re.compile(r"(?P<family>.+_world_size_(?P<world>\d+)_rank_)(?P<rank>\d+)\.pt")


@dataclass(frozen=True)
class Newest:
    """The newest complete checkpoint of a folder, and the newer torn ones with the problem of each."""

    step: int = 0
    path: Path | None = None
    torn: dict[Path, str] = field(default_factory=dict)


def newest(folder: Path, known: int = 0) -> Newest:
    """Check the checkpoints of ``folder`` from the newest on, until one is complete.

    ``known`` is a step known to be complete; older checkpoints are not checked again. Raises OSError if the folder
    exists and cannot be listed.
    """
    torn: dict[Path, str] = {}
    latest = _latest(folder)
    for step, path in _steps(folder):
        if step <= known:
            break
        try:
            problem = _unfinished(path, step, latest) or _problem(path)
        except OSError as error:
            problem = f"cannot be read: {error}"
        if problem is None:
            return Newest(step, path, torn)
        torn[path] = problem
    return Newest(known, None, torn)


def require_trusted(paths: Iterable[Path]) -> None:
    """Raise PermissionMissing if another account may have written to one of these: verl unpickles checkpoints.

    Raises OSError if one cannot be read.
    """
    for path in paths:
        if problem := files.foreign(path):
            raise PermissionMissing(
                f"The checkpoint's {path} {problem}, and verl would execute its content.",
                fix=f"If you trust it: chmod -R go-w {path}, or use a copy that you own. If your group shares "
                "checkpoints on purpose, export VERLJOB_SHARED_FOLDERS=1.",
            )


def _steps(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    named = ((_FOLDER.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted(((int(match[1]), path) for match, path in named if match and path.is_dir()), reverse=True)


def _latest(folder: Path) -> int | None:
    """Return the last step that the trainer recorded; None without a valid record."""
    try:
        return int(files.read(folder / LATEST))
    except (FileNotFoundError, ValueError):
        return None


def _unfinished(path: Path, step: int, latest: int | None) -> str | None:
    if latest is None:
        return None if (path / "data.pt").is_file() else "has no data.pt, which is written after the shards"
    return f"is newer than {LATEST}, which has {latest}" if step > latest else None


def _problem(path: Path) -> str | None:
    """Return the problem with the files of one checkpoint, None if it is complete."""
    files = sorted(item for item in path.rglob("*") if item.is_file())
    shards = [item for item in files if item.suffix in (".pt", ".distcp") and item.parent != path]
    models = {item.parent for item in files if item.name in (*weights.INDEXES, *weights.SINGLES)}
    if not shards and not models:
        return "has no shard (trainer.max_actor_ckpt_to_keep removes those of older checkpoints)"
    return (
        _missing_rank(shards)
        or next((f"has {item.relative_to(path)} truncated" for item in files if not _complete(item)), None)
        or next((problem for folder in sorted(models) if (problem := _bad_model(folder))), None)
    )


def _missing_rank(shards: list[Path]) -> str | None:
    """Return a sentence about a shard that is missing for a rank."""
    families: dict[tuple[Path, str, int], set[int]] = {}
    for shard in shards:
        if match := _RANKED.fullmatch(shard.name):
            key = (shard.parent, match["family"], int(match["world"]))
            families.setdefault(key, set()).add(int(match["rank"]))
    for (folder, family, world), ranks in families.items():
        for rank in sorted(set(range(world)) - ranks):
            return f"is missing {folder.name}/{family}{rank}.pt (do all nodes write to the same file system?)"
    distributed = {shard.parent for shard in shards if shard.suffix == ".distcp"}
    return next((f"is missing {folder.name}/.metadata" for folder in distributed if not _has_metadata(folder)), None)


def _has_metadata(folder: Path) -> bool:
    """torch.distributed.checkpoint writes it after every rank has written its part."""
    metadata = folder / ".metadata"
    return metadata.is_file() and metadata.stat().st_size > 0


def _complete(path: Path) -> bool:
    """Check torch.save's zip archive by the directory at its end."""
    if path.suffix == ".distcp":
        return path.stat().st_size > 0
    if path.suffix != ".pt":
        return True
    try:
        with zipfile.ZipFile(path) as archive:
            entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
            if entries[0].header_offset != 0:  # it is relative to the directory: a part in between is missing
                return False
            archive.open(entries[-1]).close()
    except (zipfile.BadZipFile, IndexError):  # IndexError: an archive without entries
        return False
    return True


def _bad_model(folder: Path) -> str | None:
    try:
        weights.check(folder)
    except InputUnavailable as error:
        return f"has incomplete weights: {error.cause}"
    return None
