"""The demo: push, sbatch, two nodes, verl's own training, and a report."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from slurm.errors import JobUnfinished
from slurm.jobs import records
from slurm.testbed import Cluster, Job

FLAGS = ["--nodes=2", "--gpus-per-node=1", "--cpus-per-task=8", "--mem=8G", "--time=25"]
# Slurm ends the job at --time; the rest is for its last words.
JOB_TIMEOUT_S = 27 * 60
POLL_S = 2.0
LAST_LINES = 30

Say = Callable[[str], None]


def run(image: str, base: str, folder: Path, *, say: Say) -> int:
    """Train with ``demo_cpu`` on a rehearsal cluster of two nodes and return the job's exit code.

    :param image: a verl.cpu that this machine's engine has.
    :param base: what the cluster's own containers are built on; see Cluster.up.
    :param folder: where the run directory and the job's output are copied to; what was there is removed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    cluster, watch = Cluster(2, name="verljob-demo"), Stopwatch(say)
    try:
        cluster.down()  # what a demo left that was killed; its /home would tell old stories
        cluster.up(base)
        watch.lap(f"cluster    a login node, a registry and {len(cluster.nodes)} compute nodes are up")
        reference = cluster.push(image)
        watch.lap(f"push       {reference}")
        home = cluster.sync_checkout()
        number = cluster.sbatch([*FLAGS, "slurm/launch.sh", "demo_cpu"], environment={"VERLJOB_IMAGE": reference})
        say(f"sbatch     {' '.join(FLAGS)} slurm/launch.sh demo_cpu: job {number}, as submitter in {home}")
        run_dir = f"{home}/verljob/{number}/attempt-1"
        job = follow(cluster, number, run_dir, say)
        watch.lap(f"job        {job.state}")
        collect(cluster, [job.output, run_dir, f"{home}/verljob/{number}/checkpoints"], folder)
    finally:
        cluster.down()
        watch.lap("cluster    removed")
    say(f"\n{summary(folder / Path(run_dir).name, job)}")
    # A job that Slurm ended has no code of its own.
    return job.code or int(job.state != "COMPLETED")


class Stopwatch:
    """Tells how long each part took."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._then = time.monotonic()

    def lap(self, done: str) -> None:
        """Tell what was done since the last lap and how long it took."""
        now = time.monotonic()
        self._say(f"{done} ({now - self._then:.0f} s)")
        self._then = now


def follow(cluster: Cluster, number: int, run_dir: str, say: Say) -> Job:
    """Tell what a job does until it ends; raises JobUnfinished at the deadline."""
    deadline = time.monotonic() + JOB_TIMEOUT_S
    story = Story(cluster, run_dir, say)
    while time.monotonic() < deadline:
        job = cluster.job(number)
        story.go_on(job)
        if job.ended:
            return job
        time.sleep(POLL_S)
    raise JobUnfinished(f"Job {number} has not ended after {JOB_TIMEOUT_S} s.")


class Story:
    """Tells what is new: launch.sh's own words until the nodes report, then events and training steps."""

    def __init__(self, cluster: Cluster, run_dir: str, say: Say) -> None:
        self._cluster = cluster
        self._run_dir = run_dir
        self._say = say
        self._told: dict[str, int] = {}

    def go_on(self, job: Job) -> None:
        """Tell what was written since the last call."""
        events = self._records("events.jsonl")
        if not events:
            self._tell("output", self._cluster.read(job.output).splitlines())
        self._tell("events", list(map(records.sentence, events)))
        self._tell("metrics", list(map(records.sentence, self._records("metrics.jsonl"))))

    def _records(self, name: str) -> list[records.Record]:
        return records.read(self._cluster.read(f"{self._run_dir}/{name}"))

    def _tell(self, source: str, lines: list[str]) -> None:
        for line in filter(None, lines[self._told.get(source, 0) :]):
            self._say(line)
        self._told[source] = len(lines)


def collect(cluster: Cluster, paths: list[str], folder: Path) -> None:
    """Copy what a job left behind to ``folder``; what it did not come to make is left out."""
    login = cluster.host("login")
    for path in paths:
        if not login.run(["test", "-e", path], check=False).code:
            login.fetch(path, folder)


def summary(run_dir: Path, job: Job) -> str:
    """Return the lines that end a demo, from what stands in the run directory's files."""
    result = json.loads(_text(run_dir / "result.json") or "{}")
    steps = [record for record in records.read(_text(run_dir / "metrics.jsonl")) if "step" in record]
    seconds = result.get("phases") or records.phases(records.read(_text(run_dir / "events.jsonl")))
    folder = run_dir.parent
    output = folder / Path(job.output).name
    shards = sorted(path.relative_to(folder) for path in folder.glob("checkpoints/global_step_*/actor/model_*.pt"))
    lines = [
        f"{f'job {job.id}':<10} {job.state}, exit code {job.code}, on {job.nodes}",
        *([f"cause      {result['cause']} {result.get('fix') or ''}"] if result.get("code") else []),
        "phases     " + ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items()),
        *(f"training   {records.step(record)}" for record in steps),
        *(f"checkpoint {shard}" for shard in shards),
        f"files      {run_dir}: result.json, events.jsonl, metrics.jsonl, nodes/<node>/",
        f"output     {output}",
    ]
    if job.state != "COMPLETED":
        lines += ["its last lines:", *_text(output).splitlines()[-LAST_LINES:]]
    return "\n".join(lines)


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
