"""Checkpoints of verl's trainers: complete ones of a folder, and the newest.

A trainer writes `global_step_N/`, in it a file a rank (FSDP: `actor/model_world_size_8_rank_3.pt`, …; Megatron:
`dist_ckpt/`), then the data loader's `data.pt`, and last, not by rename, the number into a file beside the folders.
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
class Found:
    """The newest whole checkpoint of a folder, if there is one, and the newer ones with what is wrong with each."""

    step: int = 0
    path: Path | None = None
    torn: dict[Path, str] = field(default_factory=dict)


def newest(folder: Path, known: int = 0) -> Found:
    """Look at the checkpoints of ``folder`` from the newest on, until one is whole.

    ``known`` is a step known to be whole: what is not newer is not looked at again. Raises OSError where the folder
    cannot be listed, but not where there is none.
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
            return Found(step, path, torn)
        torn[path] = problem
    return Found(known, None, torn)


def require_own(places: Iterable[Path]) -> None:
    """Raise PermissionMissing where another account may have written one of these: verl unpickles checkpoints.

    Raises OSError where one cannot be looked at.
    """
    for place in places:
        if problem := files.foreign(place):
            raise PermissionMissing(
                f"The checkpoint's {place} {problem}, and verl would run what it holds.",
                fix=f"If you trust it: chmod -R go-w {place}, or make a copy of your own. A group that shares its "
                "checkpoints on purpose exports VERLJOB_SHARED_FOLDERS=1.",
            )


def _steps(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    named = ((_FOLDER.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted(((int(match[1]), path) for match, path in named if match and path.is_dir()), reverse=True)


def _latest(folder: Path) -> int | None:
    """The step that the trainer says it saved last; None where it says nothing, or was killed while it wrote it."""
    try:
        return int(files.read(folder / LATEST))
    except (FileNotFoundError, ValueError):
        return None


def _unfinished(path: Path, step: int, latest: int | None) -> str | None:
    if latest is None:
        return None if (path / "data.pt").is_file() else "has no data.pt, which is written after the shards"
    return f"is newer than {LATEST}, which says {latest}" if step > latest else None


def _problem(path: Path) -> str | None:
    """What is wrong with the files of one checkpoint, None for nothing."""
    files = sorted(item for item in path.rglob("*") if item.is_file())
    shards = [item for item in files if item.suffix in (".pt", ".distcp") and item.parent != path]
    models = {item.parent for item in files if item.name in (*weights.INDEXES, *weights.SINGLES)}
    if not shards and not models:
        return "holds no shard (trainer.max_actor_ckpt_to_keep removes those of older ones)"
    return (
        _missing_rank(shards)
        or next((f"has {_below(path, item)} cut short" for item in files if not _whole(item)), None)
        or next((problem for folder in sorted(models) if (problem := _bad_model(folder))), None)
    )


def _missing_rank(shards: list[Path]) -> str | None:
    """Every family of shards (model, optim, extra_state of actor and critic) has one of every rank."""
    families: dict[tuple[Path, str, int], set[int]] = {}
    for shard in shards:
        if match := _RANKED.fullmatch(shard.name):
            key = (shard.parent, match["family"], int(match["world"]))
            families.setdefault(key, set()).add(int(match["rank"]))
    for (folder, family, world), ranks in families.items():
        for rank in sorted(set(range(world)) - ranks):
            return f"lacks {folder.name}/{family}{rank}.pt (do all nodes write to one file system?)"
    distributed = {shard.parent for shard in shards if shard.suffix == ".distcp"}
    return next((f"lacks {folder.name}/.metadata" for folder in distributed if not _has_metadata(folder)), None)


def _has_metadata(folder: Path) -> bool:
    """torch.distributed.checkpoint writes it when every rank has written its part."""
    metadata = folder / ".metadata"
    return metadata.is_file() and metadata.stat().st_size > 0


def _whole(path: Path) -> bool:
    """torch.save's files are zip archives with their directory at the end; that says where the last entry begins."""
    if path.suffix == ".distcp":
        return path.stat().st_size > 0
    if path.suffix != ".pt":
        return True
    try:
        with zipfile.ZipFile(path) as archive:
            entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
            if entries[0].header_offset != 0:  # counted back from the directory: a piece in between is missing
                return False
            archive.open(entries[-1]).close()
    except (zipfile.BadZipFile, IndexError):  # IndexError: an archive without entries
        return False
    return True


def _bad_model(folder: Path) -> str | None:
    try:
        weights.check(folder)
    except InputUnavailable as error:
        return f"has weights that are not whole: {error.cause}"
    return None


def _below(path: Path, item: Path) -> str:
    return str(item.relative_to(path))
