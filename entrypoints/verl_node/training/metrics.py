"""Writes metrics.jsonl (docs/flow.md) while the training runs, from the output of verl's loggers."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from verl_node.gpu.usage import Gpu, Watch
from verl_node.reporting import files
from verl_node.reporting.masking import masked

_POLL_S = 0.5
_TIMING = "timing_s/"  # prefix of the phases of a step (gen, old_log_prob, update_actor, …), in seconds

# verl's console logger: `step:4 - actor/grad_norm:0.41 - …`, behind Ray's colours and `(TaskRunner pid=…)`.
_CONSOLE_STEP = re.compile(r"\bstep:(\d+) - (\S+:\S+(?: - \S+:\S+)*)")
_NUMPY = re.compile(r"np\.\w+\(([^()]*)\)")  # verl 0.9 prints np.float64(0.5) for some

Record = tuple[int, dict[str, Any]]
"""A step's number and its metrics."""


class MetricsWriter:
    """Follows verl's file logger, or its console lines in a release without one (``file_log`` is None)."""

    def __init__(
        self, path: Path, host: str, gpus: Watch, file_log: Path | None, on_step: Callable[[int], None]
    ) -> None:
        self._path = path
        self._gpus = gpus
        self._on_step = on_step
        self._host = host
        self._file_log = file_log
        self._offset = 0
        self._from_console: list[Record] = []

    def read_line(self, text: str) -> None:
        """Read a line of the training's output."""
        record = console_record(text) if self._file_log is None else None
        if record is not None:
            self._from_console.append(record)

    async def follow(self) -> None:
        """Write rows as steps are logged, until cancelled; then `catch_up` writes the last ones."""
        while True:
            await self.catch_up()
            await asyncio.sleep(_POLL_S)

    async def catch_up(self) -> None:
        """Write a row for every newly logged step; a full disk costs rows, not the training."""
        try:
            await self._write_new()
        except OSError as error:
            _log_failure(error)

    async def _write_new(self) -> None:
        """Write new records; reading the GPUs may be cancelled before they count as written."""
        records, offset = list(self._from_console), self._offset
        if self._file_log is not None:
            records, offset = new_records(self._file_log, offset)
        if not records:
            return
        usage = await self._gpus.since()
        rows = [row(record, time=round(time.time(), 3), host=self._host, gpus=usage) for record in records]
        self._write(rows)
        self._offset = offset
        del self._from_console[: len(rows)]
        self._on_step(records[-1][0])

    def write_row(self, row: Any) -> None:
        """Write a row from another node."""
        try:
            self._write([row])
        except OSError as error:
            _log_failure(error)

    def _write(self, rows: Iterable[Any]) -> None:
        with files.appending(self._path) as file:
            file.writelines(f"{masked(json.dumps(row))}\n" for row in rows)


def _log_failure(error: OSError) -> None:
    print(f"metrics.jsonl could not be written: {error}", flush=True)  # noqa: T201


async def gpu_row(step: int, host: str, gpus: Watch) -> dict[str, Any] | None:
    """Return a row with the usage of this node's GPUs in a step, None without GPUs."""
    usage = await gpus.since()
    return row((step, {}), time=round(time.time(), 3), host=host, gpus=usage) if usage else None


def row(record: Record, *, time: float, host: str, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """Return the row of metrics.jsonl for a record; ``time`` in epoch seconds."""
    step, metrics = record
    return {
        "time": time,
        "host": host,
        "step": step,
        "phases": {name[len(_TIMING) :]: value for name, value in metrics.items() if name.startswith(_TIMING)},
        "metrics": {name: value for name, value in metrics.items() if not name.startswith(_TIMING)},
        "gpus": list(gpus),
    }


def file_record(line: str | bytes) -> Record:
    """Parse a line of verl's file logger: `{"step": 1, "data": {name: number}}`."""
    content = json.loads(line)
    return int(content["step"]), dict(content["data"])


def console_record(line: str) -> Record | None:
    """Parse a step line of verl's console logger; None for any other line."""
    found = _CONSOLE_STEP.search(line)
    if not found:
        return None
    metrics: dict[str, Any] = {}
    for item in found[2].split(" - "):
        name, _, value = item.rpartition(":")
        if (number := _number(_NUMPY.sub(r"\1", value))) is not None:
            metrics[name] = number
    return int(found[1]), metrics


def new_records(path: Path, offset: int) -> tuple[list[Record], int]:
    """Return the records of verl's file from byte ``offset`` on, and the next offset.

    An incomplete last line is left for the next call. A file that does not exist yet has no records; one that became
    shorter was started again and is read from its start.
    """
    try:
        with files.opened(path) as file:
            if offset > os.fstat(file.fileno()).st_size:
                offset = 0
            file.seek(offset)
            content = file.read()
    except FileNotFoundError:
        return [], offset
    whole = content[: content.rfind(b"\n") + 1]
    return [file_record(line) for line in whole.split(b"\n") if line.strip()], offset + len(whole)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
