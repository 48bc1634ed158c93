"""The demo: pushes an image, trains with verl on two nodes through sbatch, and prints a report."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm.errors import JobUnfinished
from slurm.testbed import Cluster, Job

FLAGS = ["--nodes=2", "--gpus-per-node=1", "--cpus-per-task=8", "--mem=8G", "--time=25"]
# Slurm ends the job at --time; the rest is for its shutdown.
JOB_TIMEOUT_S = 27 * 60
POLL_S = 2.0
LAST_LINES = 30
# verl's own names of metrics (verl 0.9, trainer/ppo/metric_utils.py and utils/metric) in the line of a step.
METRICS = {"reward": "critic/rewards/mean", "grad norm": "actor/grad_norm"}
VALIDATION = "val-core/"
# Phases that may take so long that their beginning is printed too.
LONG_PHASES = {"data", "model", "train"}

Record = Mapping[str, Any]
"""A record of events.jsonl or metrics.jsonl in the run directory (docs/flow.md)."""
PrintLine = Callable[[str], None]


def run(image: str | Path, base: str, folder: Path, *, runtime: str = "", print_line: PrintLine) -> int:
    """Train with ``demo_cpu`` on a rehearsal cluster of two nodes and return the job's exit code.

    :param image: a verl.cpu of this machine's engine, which is pushed to the cluster's registry; or a squashfs of it,
        which is copied to the account's home.
    :param base: the base image of the cluster's containers; see Cluster.up.
    :param runtime: VERLJOB_RUNTIME of the job, empty for the default.
    :param folder: destination of the run directory and the job's output; its old content is removed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    cluster, watch = Cluster(2, name="verljob-demo"), Stopwatch(print_line)
    try:
        cluster.down()  # of a demo that was killed; its /home would have old results
        cluster.up(base)
        watch.print_lap(f"cluster    a login node, a registry and {len(cluster.nodes)} compute nodes are up")
        home = cluster.sync_checkout()
        reference = _bring(cluster, image, home)
        watch.print_lap(f"image      {reference}")
        environment = {"VERLJOB_IMAGE": reference, **({"VERLJOB_RUNTIME": runtime} if runtime else {})}
        number = cluster.sbatch([*FLAGS, "slurm/launch.sh", "demo_cpu"], environment=environment)
        print_line(f"sbatch     {' '.join(FLAGS)} slurm/launch.sh demo_cpu: job {number}, as submitter in {home}")
        run_dir = f"{home}/verljob/{number}/attempt-1"
        job = follow(cluster, number, run_dir, print_line)
        watch.print_lap(f"job        {job.state}")
        collect(cluster, [job.output, run_dir, f"{home}/verljob/{number}/checkpoints"], folder)
    finally:
        cluster.down()
        watch.print_lap("cluster    removed")
    print_line(f"\n{summary(folder / Path(run_dir).name, job)}")
    # A job that Slurm ended has no exit code.
    return job.code or int(job.state != "COMPLETED")


def _bring(cluster: Cluster, image: str | Path, home: str) -> str:
    """Bring an image to where the nodes see it, and return VERLJOB_IMAGE."""
    if isinstance(image, str):
        return cluster.push(image)
    path = f"{home}/{image.name}"
    cluster.host("login").put_large(image, path, user="submitter")
    return path


class Stopwatch:
    """Prints the duration of each part."""

    def __init__(self, print_line: PrintLine) -> None:
        self._print_line = print_line
        self._began = time.monotonic()

    def print_lap(self, text: str) -> None:
        """Print ``text`` with the seconds since the last lap."""
        now = time.monotonic()
        self._print_line(f"{text} ({now - self._began:.0f} s)")
        self._began = now


def follow(cluster: Cluster, number: int, run_dir: str, print_line: PrintLine) -> Job:
    """Print the progress of a job until it ends; raises JobUnfinished at the deadline."""
    deadline = time.monotonic() + JOB_TIMEOUT_S
    progress = Progress(cluster, run_dir, print_line)
    while time.monotonic() < deadline:
        job = cluster.job(number)
        progress.print_new(job)
        if job.ended:
            return job
        time.sleep(POLL_S)
    raise JobUnfinished(f"Job {number} has not ended after {JOB_TIMEOUT_S} s.")


class Progress:
    """Prints new lines of a job: its output until the nodes write events, then events and training steps."""

    def __init__(self, cluster: Cluster, run_dir: str, print_line: PrintLine) -> None:
        self._cluster = cluster
        self._run_dir = run_dir
        self._print_line = print_line
        self._printed: dict[str, int] = {}

    def print_new(self, job: Job) -> None:
        """Print the lines that were written since the last call."""
        events = self._records("events.jsonl")
        if not events:
            self._print("output", self._cluster.read(job.output).splitlines())
        self._print("events", list(map(describe, events)))
        self._print("metrics", list(map(describe, self._records("metrics.jsonl"))))

    def _records(self, name: str) -> list[Record]:
        return parse(self._cluster.read(f"{self._run_dir}/{name}"))

    def _print(self, source: str, lines: list[str]) -> None:
        for line in filter(None, lines[self._printed.get(source, 0) :]):
            self._print_line(line)
        self._printed[source] = len(lines)


def parse(text: str) -> list[Record]:
    """Return the records of a JSON-lines file, without a last line that is incomplete."""
    complete, _, _ = text.rpartition("\n")
    return [json.loads(line) for line in complete.split("\n") if line]


def describe(record: Record) -> str:
    """Return a record as one line; empty for one that is not worth a line."""
    if "step" in record:
        return f"{'train':<10} {describe_step(record)}"
    message = record.get("message", "").rpartition("\r")[2]  # the last state of a progress bar
    if record["event"] == "begin":
        text = message or ("begins" if record["phase"] in LONG_PHASES else "")
    elif record["event"] == "end":
        text = f"done in {record['seconds']:.1f} s" + (f": {message}" if message else "")
    else:
        text = message if record["event"] == "note" else f"{record['event']}: {message}"
    return f"{record['phase']:<10} {record['host']}: {text}" if text else ""


def describe_step(record: Record) -> str:
    """Return a step's number, seconds and the metrics that show whether it learned."""
    metrics, seconds = record["metrics"], record["phases"].get("step")
    parts = [f"step {record['step']}"]
    parts += [f"{seconds:.1f} s"] if seconds is not None else []
    parts += [f"{name} {metrics[key]:.4g}" for name, key in METRICS.items() if key in metrics]
    parts += [f"validation {value:.4g}" for key, value in metrics.items() if key.startswith(VALIDATION)]
    return ", ".join(parts)


def phase_seconds(events: Sequence[Record]) -> dict[str, float]:
    """Return the duration of each phase on its slowest node in s, in the order in which they ended."""
    seconds: dict[str, float] = {}
    for event in events:
        if event["event"] == "end":
            seconds[event["phase"]] = max(seconds.get(event["phase"], 0.0), event["seconds"])
    return seconds


def collect(cluster: Cluster, paths: list[str], folder: Path) -> None:
    """Copy the existing files of a job to ``folder``."""
    login = cluster.host("login")
    for path in paths:
        if not login.run(["test", "-e", path], check=False).code:
            login.fetch(path, folder)


def summary(run_dir: Path, job: Job) -> str:
    """Return the last lines of a demo, from the files of the run directory."""
    result = json.loads(_text(run_dir / "result.json") or "{}")
    steps = [record for record in parse(_text(run_dir / "metrics.jsonl")) if "step" in record]
    seconds = result.get("phases") or phase_seconds(parse(_text(run_dir / "events.jsonl")))
    folder = run_dir.parent
    output = folder / Path(job.output).name
    shards = sorted(path.relative_to(folder) for path in folder.glob("checkpoints/global_step_*/actor/model_*.pt"))
    lines = [
        f"{f'job {job.id}':<10} {job.state}, exit code {job.code}, on {job.nodes}",
        *([f"cause      {result['cause']} {result.get('fix') or ''}"] if result.get("code") else []),
        "phases     " + ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items()),
        *(f"training   {describe_step(record)}" for record in steps),
        *(f"checkpoint {shard}" for shard in shards),
        f"files      {run_dir}: result.json, events.jsonl, metrics.jsonl, nodes/<node>/",
        f"output     {output}",
    ]
    if job.state != "COMPLETED":
        lines += ["its last lines:", *_text(output).splitlines()[-LAST_LINES:]]
    return "\n".join(lines)


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
