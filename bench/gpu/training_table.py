"""The tables of runs of bench/gpu/training.py: throughput, phases of a step, start, checks of the training, and ends.

    python3 bench/gpu/training_table.py [--warm-up N] FOLDER…

A FOLDER is a job's, or has jobs' folders in it. A step's figures are those of verl's metrics; utilisation and memory
are nvidia-smi's, once a second, beside those of metrics.jsonl. Figures are the median over the steps after the warm-up,
with the lowest and highest in brackets. MFU is the model's operations of the update (multiply and add of each weight
that is multiplied, and causal attention; three times those of a forward pass; recomputation does not count) over the
seconds of update_actor and the cards' 989 TFLOP/s of dense bfloat16. verl's own MFU also counts the embedding as a
multiplication, and only the seconds in its engine.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.gpu import training_shutdown
from bench.gpu.training_result import ALONE, Row, Trained, read, read_lines

PHASES = (
    "gen",
    "reward",
    "old_log_prob",
    "ref",
    "values",
    "adv",
    "update_critic",
    "update_actor",
    "update_weights",
    "save_checkpoint",
)
# First line of the output after which a part of the start has ended, and what verl and vLLM report themselves.
MARKS = {
    "the trainer has imported": r"\(TaskRunner\w* pid=",
    "a worker has its model": r"ForCausalLM contains",
    "a worker has its optimizer": r"Total steps: \d+, num_warmup_steps",
    "engine starts": r"Initializing a V1 LLM engine",
    "engine has its model": r"Model loading took",
    "engine is compiled": r"torch\.compile (?:took|takes) [\d.]+ s in total|Compiling a graph .* takes",
    "CUDA graphs are captured": r"Graph capturing finished",
    "engine serves": r"init engine .* took|Application startup complete",
    "first step begins": r"Training Progress:\s+\d+%",
}
REPORTED = {
    "engine: model": r"Model loading took [\d.]+ GiB.*? ([\d.]+) seconds",
    "engine: torch.compile": r"torch\.compile (?:took|takes) ([\d.]+) s in total",
    "engine: CUDA graphs": r"Graph capturing finished in (\d+) secs",
    "engine: init": r"init engine \(.*?\) took ([\d.]+) s",
}
CHECKS = {
    "reward": "critic/score/mean",
    "reward, lowest": "critic/score/min",
    "reward, highest": "critic/score/max",
    "grad_norm": "actor/grad_norm",
    "entropy": "actor/entropy",
    "KL to the first weights": "actor/kl_loss",
    "engine minus trainer, probability, mean": "training/rollout_probs_diff_mean",
    "engine minus trainer, probability, max": "training/rollout_probs_diff_max",
    "engine and trainer, correlation": "training/rollout_actor_probs_pearson_corr",
    "engine minus trainer, log-perplexity": "rollout_corr/log_ppl_abs_diff",
}


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Return the median, and lowest and highest in brackets."""
    if not values:
        return ""
    median, low, high = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return median if low == high else f"{median} ({low} to {high})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def outcome(job: Trained) -> str:
    """Return the exit code and the problems."""
    return ": ".join(filter(None, (str(job.launch["code"]), "; ".join(job.launch["problems"]))))


def throughput(job: Trained) -> list[str]:
    rates = [tokens / seconds for tokens, seconds in zip(job.tokens(), job.seconds())]
    rollouts = [job.answer_tokens(row) / seconds for row, seconds in zip(job.rows, job.per_step("gen")) if seconds]
    uses = [use for row in job.rows for use in job.usage(row)]
    changes = job.launch["overrides"]
    return [
        job.name,
        f"{job.launch['gpus']} x {job.launch['card']}",
        job.model,
        f"{changes.get('data.train_batch_size')}, {changes.get('actor_rollout_ref.actor.ppo_mini_batch_size')}",
        spread([row["metrics"]["prompt_length/mean"] + row["metrics"]["response_length/mean"] for row in job.rows], 0),
        str(len(job.rows)),
        spread(job.seconds()),
        spread(rates, 0),
        spread([rate / job.gpus for rate in rates], 0),
        spread(rollouts, 0),
        spread(job.update_mfu(), 3),
        spread([row["metrics"]["perf/mfu/actor"] for row in job.rows if "perf/mfu/actor" in row["metrics"]], 3),
        f"{statistics.fmean(percent for percent, _ in uses):.0f}" if uses else "",
        f"{max(mib for _, mib in uses) / 1024:.1f}" if uses else "",
        outcome(job),
    ]


THROUGHPUT = (
    "run",
    "GPUs",
    "model",
    "prompts of a step, of a mini batch",
    "tokens of an answer with its prompt",
    "steps",
    "step, s",
    "tokens/s",
    "tokens/s of each GPU",
    "rollout, answer tokens/s",
    "MFU of the update",
    "MFU by verl",
    "GPU utilisation, %",
    "highest GPU memory, GiB",
    "exit code",
)


def phases(job: Trained) -> list[list[str]]:
    whole = statistics.median(job.seconds())
    rest = [
        total - sum(job.per_step(phase)[n] for phase in PHASES if phase != "save_checkpoint")
        for n, total in enumerate(job.seconds())
    ]
    used = [(phase, job.per_step(phase)) for phase in PHASES if any(job.per_step(phase))]
    return [
        [job.name, phase, spread(seconds, 2), f"{100 * statistics.median(seconds) / whole:.0f} %", busy(job, phase)]
        for phase, seconds in [*used, ("rest", rest)]
    ]


def busy(job: Trained, phase: str) -> str:
    """Return the GPUs' utilisation in a phase, empty if it is too short for nvidia-smi."""
    percent = job.utilisation(phase)
    return "" if percent is None else f"{percent:.0f}"


def start(job: Trained, events: Sequence[Row]) -> list[list[str]]:
    """Return seconds from the launch to the end of each part of the start, and durations that the engine logs."""
    ends = [(f"{event['phase']} ended", event["time"]) for event in events if event["event"] == "end"]
    ends += [
        ("train began", event["time"]) for event in events if (event["phase"], event["event"]) == ("train", "begin")
    ]
    ends += [(f"log: {name}", time) for name, time in first_times(job.lines).items()]
    ends = [end for end in ends if job.first is None or end[1] <= job.first]
    if job.first:
        ends.append(("first step is logged", job.first))
    ends.sort(key=lambda end: end[1])
    rows = [[job.name, name, f"{time - job.launch['began']:.1f}", ""] for name, time in ends]
    for name, pattern in REPORTED.items():
        found = [float(match[1]) for _, line in job.lines if (match := re.search(pattern, line))]
        rows += [[job.name, name, "", f"{found[0]:.1f}"]] if found else []
    return rows


def first_times(lines: Sequence[tuple[float, str]]) -> dict[str, float]:
    """Return the time of the first line for each of MARKS."""
    times: dict[str, float] = {}
    for time, line in lines:
        for name, pattern in MARKS.items():
            if name not in times and re.search(pattern, line):
                times[name] = time
    return times


def checks(job: Trained) -> list[list[str]]:
    """Return what shows that the training trains, and metrics.jsonl's GPU figures beside nvidia-smi's."""
    rows = []
    for name, key in CHECKS.items():
        values = [row["metrics"][key] for row in job.rows if key in row["metrics"]]
        if values:
            rows.append(
                [job.name, name, f"{values[0]:.6g}", f"{values[-1]:.6g}", f"{min(values):.6g} to {max(values):.6g}"]
            )
    validations = [
        (key, row["metrics"][key]) for row in job.rows for key in row["metrics"] if key.startswith("val-core")
    ]
    rows += [[job.name, key, "", f"{value:.6g}", ""] for key, value in validations]
    for row in job.rows:
        ours = ", ".join(
            f"{gpu['utilisation_percent']:.0f} %, {gpu['memory_used_bytes'] / 2**30:.1f} GiB" for gpu in row["gpus"]
        )
        theirs = ", ".join(f"{percent:.0f} %, {mib / 1024:.1f} GiB" for percent, mib in job.usage(row))
        rows.append([job.name, f"GPUs in step {row['step']}: metrics.jsonl; nvidia-smi", ours, theirs, ""])
    return rows


PHASE_TABLE = ("run", "phase", "seconds of a step", "share", "GPU utilisation, %")
ENDS = (
    "run",
    "signal",
    "exit code",
    "s until node.sh ended, after the signal or the launch",
    "s from there until the GPU's memory was free",
    "s from there until nothing was left",
    "explain",
)


def ends(job: Trained, folder: Path) -> list[str]:
    """Return the row of a job that a signal or a missing package ended."""
    signals = {
        "term": "TERM to all processes",
        "kill": "KILL to vLLM's engine",
        "lost": "KILL to all processes of the last node",
    }
    seconds = [job.launch.get(name) for name in ("ended_s", "freed_s", "left_s")]
    explained = (folder / "explain.txt").read_text(encoding="utf-8").splitlines()
    return [
        job.name,
        signals.get(job.launch["kind"], f"none, without {training_shutdown.MISSING}"),
        outcome(job),
        *("" if figure is None else f"{figure:.1f}" for figure in seconds),
        "".join(explained[:1]),
    ]


ALONE_TABLES = {
    "vllm": ("prompts x answers", "tokens of a batch", "max_num_seqs", "vLLM alone, tokens/s", "start, s"),
    "update": ("rows of a micro batch", "its tokens", "forward and backward pass alone, ms", "tokens/s", "MFU"),
}


def alone(kind: str, folder: Path) -> list[list[str]]:
    """Return the row of a run of one part alone, none for another job."""
    cells = {"vllm": rollout_cells, "update": update_cells}[kind]
    return [
        [job.name, f"1 x {job.launch['card']}", job.model, *cells(result)]
        for result in read_lines(folder / f"{kind}.json")
        for job in [read(folder, 0)]
    ]


def rollout_cells(result: Row) -> list[str]:
    return [
        f"{result['prompts']} x {result['answers']}",
        str(result["tokens_of_batches"][0]),
        str(result["max_num_seqs"]),
        spread(result["rates"], 0),
        f"{result['start_s']:.0f}",
    ]


def update_cells(result: Row) -> list[str]:
    return [
        str(result["rows"]),
        str(result["tokens_of_batch"]),
        spread([1000 * each for each in result["seconds"]], 0),
        f"{result['tokens_per_s']:.0f}",
        f"{result['mfu']:.3f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--warm-up", type=int, default=1, help="steps of a job that are not counted")
    given = parser.parse_args()
    folders = sorted(path.parent for top in given.folders for path in top.rglob("launch.json"))
    print(report(folders, given.warm_up))


def report(folders: Sequence[Path], warm_up: int = 1) -> str:
    """Return all tables of some runs."""
    jobs = [(job, folder) for folder in folders if (job := read(folder, warm_up)).launch["kind"] not in ALONE]
    ended = [(job, folder) for job, folder in jobs if job.launch["kind"] in training_shutdown.KINDS]
    others = [job for job, _ in jobs if job.launch["kind"] not in training_shutdown.KINDS]
    trained = [job for job in others if job.rows]
    without = [
        f"{job.name}: no step after the warm-up ({'; '.join(job.launch['problems'])})"
        for job in others
        if not job.rows and (job.launch["problems"] or job.launch["kind"] != "start")
    ]
    parts = [
        table(THROUGHPUT, [throughput(job) for job in trained]),
        table(PHASE_TABLE, [row for job in trained for row in phases(job)]),
        table(
            ("run", "start", "seconds since the launch", "seconds, by the engine's log"),
            [row for job, folder in jobs for row in start(job, read_lines(folder / "events.jsonl"))],
        ),
        table(
            ("run", "check", "first counted step", "last step", "range"),
            [row for job in trained for row in checks(job)],
        ),
    ]
    if ended:
        parts.append(table(ENDS, [ends(job, folder) for job, folder in ended]))
    for kind, columns in ALONE_TABLES.items():
        rows = [row for folder in folders for row in alone(kind, folder)]
        if rows:
            parts.append(table(("run", "GPUs", "model", *columns), rows))
    return "\n\n".join([*parts, *without])


if __name__ == "__main__":
    main()
