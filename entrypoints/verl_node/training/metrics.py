"""Converts the output of verl's loggers into rows of metrics.jsonl (docs/flow.md)."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_node.gpu.usage import Gpu
from verl_node.reporting import files

TIMING = "timing_s/"  # verl's phases of a step (gen, old_log_prob, update_actor, …), seconds

# verl's console logger: `step:4 - actor/grad_norm:0.41 - …`, behind Ray's colours and `(TaskRunner pid=…)`.
_CONSOLE_STEP = re.compile(r"\bstep:(\d+) - (\S+:\S+(?: - \S+:\S+)*)")
_NUMPY = re.compile(r"np\.\w+\(([^()]*)\)")  # verl 0.9 prints np.float64(0.5) for some

Record = tuple[int, dict[str, Any]]


def row(record: Record, *, time: float, host: str, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """A row of metrics.jsonl for one record of a step; ``time`` in epoch seconds."""
    step, metrics = record
    return {
        "time": time,
        "host": host,
        "step": step,
        "phases": {name[len(TIMING) :]: value for name, value in metrics.items() if name.startswith(TIMING)},
        "metrics": {name: value for name, value in metrics.items() if not name.startswith(TIMING)},
        "gpus": list(gpus),
    }


def file_record(line: str | bytes) -> Record:
    """One line of verl's file logger: `{"step": 1, "data": {name: number}}`."""
    content = json.loads(line)
    return int(content["step"]), dict(content["data"])


def console_record(line: str) -> Record | None:
    """One step line of verl's console logger, None for any other line; for releases without a file logger."""
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
    """The records of verl's file from byte ``offset`` on, and the offset to go on from.

    A last line that verl is still writing is left for the next time; a file that is not there yet has none, one that
    became shorter was begun anew and is read from its start.
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
