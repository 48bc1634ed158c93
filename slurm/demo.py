"""The whole path on one machine: push, sbatch, two nodes, verl's own training, and what came of it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from slurm import records
from slurm.errors import JobUnfinished
from slurm.testbed import Cluster, Job

FLAGS = ["--nodes=2", "--gpus-per-node=1", "--cpus-per-task=4", "--mem=8G", "--time=25"]
# Slurm ends the job at --time; the rest is for its last words.
JOB_TIMEOUT_S = 27 * 60
POLL_S = 2.0

Say = Callable[[str], None]


def run(image: str, base: str, folder: Path, *, say: Say) -> int:
    """Train with ``demo_cpu`` on a rehearsal cluster of two nodes and return the job's exit code.

    :param image: a verl.cpu that this machine's engine has.
    :param base: what the cluster's own containers are built on; see Cluster.up.
    :param folder: where the run directory and the job's output are copied to; what was there is removed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    cluster, watch = Cluster(2), Stopwatch(say)
    try:
        cluster.up(base)
        watch.lap(f"cluster    a login node, a registry and {len(cluster.nodes)} compute nodes are up")
        reference = cluster.push(image)
        watch.lap(f"push       {reference}")
        home = cluster.sync_checkout()
        number = cluster.sbatch([*FLAGS, "slurm/launch.sh", "demo_cpu"], environment={"VERLJOB_IMAGE": reference})
        say(f"sbatch     {' '.join(FLAGS)} slurm/launch.sh demo_cpu: job {number}, as submitter in {home}")
        job = follow(cluster, number, f"{home}/verljob/{number}/attempt-1", say)
        watch.lap(f"job        {job.state}")
        return conclude(cluster, job, f"{home}/verljob/{number}/attempt-1", folder, say)
    finally:
        cluster.down()
        watch.lap("cluster    removed")


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
    told = {"events.jsonl": 0, "metrics.jsonl": 0}
    while time.monotonic() < deadline:
        job = cluster.job(number)
        for name in told:
            seen = records.read(cluster.read(f"{run_dir}/{name}"))
            for line in filter(None, map(records.sentence, seen[told[name] :])):
                say(line)
            told[name] = len(seen)
        if job.ended:
            return job
        time.sleep(POLL_S)
    raise JobUnfinished(f"Job {number} has not ended after {JOB_TIMEOUT_S} s.")


def conclude(cluster: Cluster, job: Job, run_dir: str, folder: Path, say: Say) -> int:
    """Copy what the job left behind, tell the summary and return the job's exit code, never 0 for a failure."""
    login = cluster.host("login")
    login.fetch(job.output, folder)
    if not login.run(["test", "-d", run_dir], check=False).code:
        login.fetch(run_dir, folder)
    say("\n" + summary(folder / "attempt-1", job))
    if job.state != "COMPLETED":
        say("\n".join((folder / Path(job.output).name).read_text(errors="replace").splitlines()[-30:]))
    return job.code or (0 if job.state == "COMPLETED" else 1)


def summary(run_dir: Path, job: Job) -> str:
    """Return the lines that end a demo, from what stands in the run directory's files."""
    result = json.loads(_text(run_dir / "result.json") or "{}")
    steps = [record for record in records.read(_text(run_dir / "metrics.jsonl")) if "step" in record]
    seconds = result.get("phases") or records.phases(records.read(_text(run_dir / "events.jsonl")))
    shards = sorted(path.relative_to(run_dir) for path in run_dir.glob("checkpoints/global_step_*/actor/model_*.pt"))
    lines = [
        f"job {job.id}    {job.state}, exit code {job.code}, on {job.nodes}",
        *([f"cause      {result['cause']} {result.get('fix') or ''}"] if result.get("cause") else []),
        "phases     " + ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items()),
        *(f"training   {records.step_sentence(record)}" for record in steps),
        *(f"checkpoint {shard}" for shard in shards),
        f"files      {run_dir}: result.json, events.jsonl, metrics.jsonl, nodes/<node>/, checkpoints/",
        f"output     {run_dir.parent / Path(job.output).name}",
    ]
    return "\n".join(lines)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
