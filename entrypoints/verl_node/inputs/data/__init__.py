"""Data sets: each is a function from raw rows to verl's rows, and an entry in DATA_SETS."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from verl_node.errors import BadTrainingConfig
from verl_node.inputs.data import demo, raw, rows, store
from verl_node.inputs.data.rows import Row


class DataFiles(NamedTuple):
    """The files of a data set for verl."""

    train: Path
    val: Path


class DataSet(NamedTuple):
    """How to make a data set; ``origin`` is None for one that the project generates."""

    rows: Callable[[str, Iterable[Row]], list[Row]]
    origin: raw.Origin | None
    revision: str


DATA_SETS = {
    "gsm8k": DataSet(rows.gsm8k, raw.Origin("gsm8k", "openai/gsm8k", "main", ("question", "answer")), "1"),
    "math": DataSet(rows.math, raw.Origin("math", rows.MATH_SOURCE, "data", ("problem", "solution")), "1"),
    "demo": DataSet(rows.gsm8k, None, demo.REVISION),
}


def ensure(name: str, data_dir: Path, source: Path | None = None) -> DataFiles:
    """Return ``data_dir``/``name``/train.parquet and test.parquet, made as by verl's preprocessing.

    Complete files made from the same raw files are kept; without ``source`` the hub is then not contacted. Safe if
    several nodes call it at once on a shared file system. Raises BadTrainingConfig for an unknown data set,
    InputUnavailable if neither the hub nor ``source`` has its raw files, or if they have another format.
    """
    if name not in DATA_SETS:
        raise BadTrainingConfig(
            f"There is no data set '{name}'; there are {', '.join(DATA_SETS)}.",
            fix="Pass your own parquet files as data.train_files and data.val_files.",
        )
    data_set = DATA_SETS[name]
    folder = data_dir / name
    local = raw.local(data_set.origin, source) if data_set.origin and source else None
    fingerprint = f"{data_set.revision} {raw.digest(local)}" if local else data_set.revision
    if not store.is_complete(folder, fingerprint):
        files = local or (raw.downloaded(data_set.origin, source) if data_set.origin else None)
        store.make(folder, lambda target: _write(data_set, files, target), fingerprint=fingerprint)
    return DataFiles(folder / "train.parquet", folder / "test.parquet")


def _write(data_set: DataSet, files: raw.Files | None, target: Path) -> None:
    # imported late: every image has pyarrow, the unit tests do not
    import pyarrow
    from pyarrow import parquet

    for split in raw.SPLITS:
        raw_rows = raw.read(files[split]) if files else demo.raw_rows(split)
        parquet.write_table(pyarrow.Table.from_pylist(data_set.rows(split, raw_rows)), target / f"{split}.parquet")
