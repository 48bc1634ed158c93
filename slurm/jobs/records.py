"""Readers for the files that a job writes into its run directory (docs/flow.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]

# verl's own names (verl 0.9, trainer/ppo/metric_utils.py and utils/metric), of which a step's line shows these.
SHOWN = {"reward": "critic/rewards/mean", "grad norm": "actor/grad_norm"}
VALIDATION = "val-core/"
# The phases that may last so long that their beginning is worth a line.
LONG = {"data", "model", "train"}


def read(text: str) -> list[Record]:
    """Return the records of a JSON-lines file; a last line that is still being written is left for the next time."""
    whole, _, _ = text.rpartition("\n")
    return [json.loads(line) for line in whole.split("\n") if line]


def sentence(record: Record) -> str:
    """Return the one line that tells a record of events.jsonl or metrics.jsonl; empty for what is not worth one."""
    if "step" in record:
        return f"{'train':<10} {step(record)}"
    message = record.get("message", "").rpartition("\r")[2]  # of a progress bar the last state
    if record["event"] == "begin":
        told = message or ("begins" if record["phase"] in LONG else "")
    elif record["event"] == "end":
        told = f"done in {record['seconds']:.1f} s" + (f": {message}" if message else "")
    else:
        told = message if record["event"] == "note" else f"{record['event']}: {message}"
    return f"{record['phase']:<10} {record['host']}: {told}" if told else ""


def step(record: Record) -> str:
    """Return a step's seconds and those of verl's numbers that tell whether it learned."""
    metrics, seconds = record["metrics"], record["phases"].get("step")
    words = [f"step {record['step']}"]
    words += [f"{seconds:.1f} s"] if seconds is not None else []
    words += [f"{name} {metrics[key]:.4g}" for name, key in SHOWN.items() if key in metrics]
    words += [f"validation {value:.4g}" for key, value in metrics.items() if key.startswith(VALIDATION)]
    return ", ".join(words)


def phases(events: Sequence[Record]) -> dict[str, float]:
    """Return how long each phase took, in s, on the node where it took longest, in the order in which they ended."""
    seconds: dict[str, float] = {}
    for event in events:
        if event["event"] == "end":
            seconds[event["phase"]] = max(seconds.get(event["phase"], 0.0), event["seconds"])
    return seconds
