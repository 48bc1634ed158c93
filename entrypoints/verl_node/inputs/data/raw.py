"""Raw data sets: files of a local folder or of the hub's repository, read row by row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from verl_node.errors import InputUnavailable
from verl_node.inputs import hub

SPLITS = ("train", "test")
Files = dict[str, list[Path]]


class Origin(NamedTuple):
    """Raw files of a data set: ``folder``/<split>*.parquet or .jsonl of ``repository``."""

    name: str
    repository: str
    folder: str
    columns: tuple[str, ...]


def local(origin: Origin, source: Path) -> Files | None:
    """Return the raw files under ``source``, None without any.

    It searches <source>/<name>, <source>/<repository>, <source>/<its last part> and <source>, each with and without the
    hub's subfolder: a clone of the repository or two copied files both work.
    """
    last = origin.repository.rpartition("/")[2]
    for root in (source / origin.name, source / origin.repository, source / last, source):
        for folder in (root / origin.folder, root):
            files = {split: _files(folder, split) for split in SPLITS}
            if all(files.values()) and all(set(origin.columns) <= _columns(paths[0]) for paths in files.values()):
                return files
    return None


def downloaded(origin: Origin, source: Path | None) -> Files:
    """Return the raw files from the hub or HF_HOME. Raises InputUnavailable."""
    try:
        root = hub.data_set(origin.repository, origin.folder)
    except InputUnavailable as error:
        where = f"not under {source}" if source else "in no local folder (VERLJOB_DATA_SOURCE is not set)"
        raise InputUnavailable(
            f"The raw data set {origin.name} is {where}, and {error.cause}",
            fix=f"Copy {origin.folder}/train.jsonl and test.jsonl (or .parquet, as in {origin.repository}) to "
            f"FOLDER/{origin.name} and set VERLJOB_DATA_SOURCE=FOLDER.",
        ) from error
    files = {split: _files(root / origin.folder, split) for split in SPLITS}
    if not all(files.values()):
        raise InputUnavailable(
            f"The hub's {origin.repository} has no {origin.folder}/train* and test* any more.",
            fix="Set VERLJOB_DATA_SOURCE to a folder with the raw files.",
        )
    return files


def digest(files: Files) -> str:
    """Return a fingerprint of the raw files."""
    total = hashlib.sha256()
    for path in (path for split in SPLITS for path in files[split]):
        total.update(path.read_bytes())
    return total.hexdigest()


def read(paths: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield the rows of all files, with columns in the order of the file."""
    for path in paths:
        if path.suffix == ".jsonl":
            with path.open(encoding="utf-8") as lines:
                yield from (json.loads(line) for line in lines if line.strip())
        else:
            from pyarrow import parquet

            yield from parquet.read_table(path).to_pylist()


def _files(folder: Path, split: str) -> list[Path]:
    return next((found for end in ("parquet", "jsonl") if (found := sorted(folder.glob(f"{split}*.{end}")))), [])


def _columns(path: Path) -> set[str]:
    return set(next(read([path]), {}))
