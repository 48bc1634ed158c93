"""What a job writes into its run directory while it runs, as docs/flow.md lays it down."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]

# verl's own names (verl 0.9, trainer/ppo/metric_utils.py), of which a step's line shows these.
REWARD = "critic/rewards/mean"
GRAD_NORM = "actor/grad_norm"
VALIDATION = "val-core/"


def read(text: str) -> list[Record]:
    """Return the records of a JSON-lines file; a last line that is still being written is left for the next time."""
    whole, _, _ = text.rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line]


def sentence(record: Record) -> str:
    """Return the one line that tells a record of events.jsonl or metrics.jsonl; empty for what is not worth one."""
    if "step" in record:
        return f"{'train':<10} {step_sentence(record)}"
    told = {"end": f"done in {record.get('seconds') or 0:.1f} s", "begin": ""}.get(
        record["event"], f"{record['event']}: {record.get('message', '')}"
    )
    return f"{record['phase']:<10} {record['host']}: {told}" if told else ""


def step_sentence(record: Record) -> str:
    """Return verl's numbers of one step in a few words."""
    metrics = record["metrics"]
    named = [("reward", REWARD), ("grad norm", GRAD_NORM)]
    words = [f"step {record['step']}"]
    words += [f"{name} {metrics[key]:.4g}" for name, key in named if key in metrics]
    words += [f"validation {value:.4g}" for key, value in metrics.items() if key.startswith(VALIDATION)]
    return ", ".join(words)


def phases(records: Sequence[Record]) -> dict[str, float]:
    """Return the seconds that each phase took on the node where it took longest, in the order in which they ended."""
    seconds: dict[str, float] = {}
    for record in records:
        if record.get("event") == "end":
            seconds[record["phase"]] = max(seconds.get(record["phase"], 0.0), record.get("seconds") or 0.0)
    return seconds
