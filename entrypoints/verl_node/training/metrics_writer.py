"""Writes metrics.jsonl while the training runs: a row for each step, and one for each node's GPUs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from verl_node.gpu.usage import Watch
from verl_node.reporting import files
from verl_node.reporting.masking import masked
from verl_node.training import metrics

_POLL_S = 0.5


class MetricsWriter:
    """Follows verl's file logger, or its console lines where the release has no file logger (``file_log`` is None)."""

    def __init__(
        self, path: Path, host: str, gpus: Watch, file_log: Path | None, on_step: Callable[[int], None]
    ) -> None:
        self._path = path
        self._gpus = gpus
        self._on_step = on_step
        self._host = host
        self._file_log = file_log
        self._offset = 0
        self._from_console: list[metrics.Record] = []

    def line(self, text: str) -> None:
        """Look at a line of the training's output."""
        record = metrics.console_record(text) if self._file_log is None else None
        if record is not None:
            self._from_console.append(record)

    async def follow(self) -> None:
        """Write rows as steps come, until cancelled; `catch_up` brings the last ones."""
        while True:
            await self.catch_up()
            await asyncio.sleep(_POLL_S)

    async def catch_up(self) -> None:
        """Write a row for every step that was logged since; a full disk costs rows, not the training."""
        try:
            await self._write_new()
        except OSError as error:
            print(f"metrics.jsonl could not be written: {error}", flush=True)  # noqa: T201

    async def _write_new(self) -> None:
        """May be cancelled while it asks the GPUs: a step counts as written only when it is."""
        records, offset = list(self._from_console), self._offset
        if self._file_log is not None:
            records, offset = metrics.new_records(self._file_log, offset)
        if not records:
            return
        use = await self._gpus.since()
        rows = [metrics.row(record, time=round(time.time(), 3), host=self._host, gpus=use) for record in records]
        self._write(rows)
        self._offset = offset
        del self._from_console[: len(rows)]
        self._on_step(records[-1][0])

    def take(self, row: Any) -> None:
        """Write a row that another node sent."""
        try:
            self._write([row])
        except OSError as error:
            print(f"metrics.jsonl could not be written: {error}", flush=True)  # noqa: T201

    def _write(self, rows: Iterable[Any]) -> None:
        with files.appending(self._path) as file:
            file.writelines(f"{masked(json.dumps(row))}\n" for row in rows)


async def gpu_row(step: int, host: str, gpus: Watch) -> dict[str, Any] | None:
    """Return a row of what this node's GPUs did in that step, None where it has none."""
    use = await gpus.since()
    return metrics.row((step, {}), time=round(time.time(), 3), host=host, gpus=use) if use else None
