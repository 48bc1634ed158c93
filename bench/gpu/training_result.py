"""Results of a run of bench/gpu/training.py: the files of its folder, and figures of its steps."""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ALONE = ("vllm", "update")  # kinds of a run of one part alone, with its result in <kind>.json
PEAK_FLOPS = 989e12  # of an H100 SXM and an H200, NVIDIA's data sheets: half of the figure with sparsity
SAMPLE_S = 1.0  # nvidia-smi's utilisation is that of up to a second before
LEAST_SAMPLES = 5
_TIMED = re.compile(r"([\d.]+) (.*)")

Row = dict[str, Any]


@dataclass
class Trained:
    """One job: what was launched, its rows after the warm-up, samples of nvidia-smi and lines of output with times."""

    name: str
    launch: Row
    rows: list[Row]
    first: float | None
    """When the first step was logged, in epoch seconds."""
    samples: list[Row] = field(default_factory=list)
    lines: list[tuple[float, str]] = field(default_factory=list)

    @property
    def model(self) -> str:
        shape = Path(self.launch["model"]).name
        return f"{shape}, random weights" if self.launch["random_weights"] else self.launch["model"]

    @property
    def gpus(self) -> int:
        return max(int(self.launch["gpus"]), 1)

    def per_step(self, phase: str) -> list[float]:
        return [float(row["phases"].get(phase, 0.0)) for row in self.rows]

    def seconds(self) -> list[float]:
        """Seconds of each step without its checkpoint; verl measures a validation beside the step."""
        return [step - saving for step, saving in zip(self.per_step("step"), self.per_step("save_checkpoint"))]

    def tokens(self) -> list[float]:
        return [float(row["metrics"]["perf/total_num_tokens"]) for row in self.rows]

    def answer_tokens(self, row: Row) -> float:
        """Tokens of all answers of a step, from the mean lengths and the sum that verl logs."""
        metrics = row["metrics"]
        prompt, answer = metrics["prompt_length/mean"], metrics["response_length/mean"]
        return float(metrics["perf/total_num_tokens"] * answer / (prompt + answer))

    def update_mfu(self) -> list[float]:
        return [
            update_flops(self.launch["configuration"], row["metrics"]) / (seconds * self.gpus * PEAK_FLOPS)
            for row, seconds in zip(self.rows, self.per_step("update_actor"))
            if seconds
        ]

    def utilisation(self, phase: str) -> float | None:
        """Mean percent of the GPUs in a phase, None with too few samples; verl writes the phases in their order."""
        inside = []
        for row in self.rows:
            begin = row["time"] - row["phases"].get("testing", 0.0) - row["phases"]["step"]
            for name, seconds in row["phases"].items():
                if name == phase:
                    inside += [each for each in self.samples if begin + SAMPLE_S < each["time"] <= begin + seconds]
                begin += 0.0 if name in ("step", "testing") else seconds
        if len(inside) < LEAST_SAMPLES:
            return None
        return statistics.fmean(gpu[0] for each in inside for gpu in each["gpus"] if gpu[0] is not None)

    def usage(self, row: Row) -> list[tuple[float, float]]:
        """Mean percent and highest MiB of each GPU in a step, of nvidia-smi's samples."""
        end = row["time"] - row["phases"].get("testing", 0.0)
        inside = [each["gpus"] for each in self.samples if end - row["phases"]["step"] < each["time"] <= end]
        return [(statistics.fmean(use[0] for use in uses), max(use[1] for use in uses)) for uses in zip(*inside)]


def update_flops(configuration: Row, metrics: Row) -> float:
    """Return the model's operations of a training pass over a step's tokens; attention is that of the mean length."""
    hidden, layers = configuration["hidden_size"], configuration["num_hidden_layers"]
    heads, key_values = configuration["num_attention_heads"], configuration["num_key_value_heads"]
    head = configuration.get("head_dim") or hidden // heads
    attention = 2 * hidden * head * (heads + key_values)  # query and output, key and value
    mlp = 3 * hidden * configuration["intermediate_size"]
    multiplied = layers * (attention + mlp) + hidden * configuration["vocab_size"]
    tokens = metrics["perf/total_num_tokens"]
    length = metrics["prompt_length/mean"] + metrics["response_length/mean"]
    return float(6 * multiplied * tokens + 6 * tokens * length * heads * head * layers)


def read_lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def with_all_gpus(rows: list[Row]) -> list[Row]:
    """Return the head's rows, each with the GPUs of the other nodes, which have rows of their own."""
    whole = [row for row in rows if "step" in row["phases"]]
    for row in whole:
        row["gpus"] = [gpu for each in rows if each["step"] == row["step"] for gpu in each.get("gpus", [])]
    return whole


def read(folder: Path, warm_up: int) -> Trained:
    """Return the job of a folder, without the steps of its warm-up."""
    launch = json.loads((folder / "launch.json").read_text(encoding="utf-8"))
    rows = with_all_gpus(read_lines(folder / "metrics.jsonl"))
    output = folder / "output"
    text = output.read_text("utf-8", "replace") if output.exists() and launch["kind"] not in ALONE else ""
    lines = [(float(found[1]), found[2]) for line in text.splitlines() if (found := _TIMED.match(line))]
    samples = read_lines(folder / "smi.jsonl")
    return Trained(folder.name, launch, rows[warm_up:], rows[0]["time"] if rows else None, samples, lines)
