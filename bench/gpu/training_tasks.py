"""The tasks of a job of bench/gpu/training.py, one node.sh for each node, run with the times of their output."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import zip_longest
from pathlib import Path

from bench.gpu.gpu_job import Job, process_tree
from bench.gpu.virtual_nodes import VirtualNode, environment

# As launch.sh; $1 is the run directory, $2 the attempt.
RESULT = """\
HOST=$3 STAGE=launch
for name in log ownership verdict; do source "$VERLJOB_HOME/slurm/lib/common/$name.sh"; done
verdict::read "$1/nodes/0-$3/verdict"
verdict::write_result "$@"
"""
END_S = 20  # for node.sh after TERM; it takes about 5
WATCH_S = 0.5
Task = tuple[Sequence[str], Mapping[str, str]]
"""A command and its environment."""


def tasks_of(job: Job, nodes: Sequence[VirtualNode], gpus: Sequence[str]) -> list[Task]:
    """Return the job's node.sh, or one for each of the nodes."""
    if not nodes:
        return [(job.command, job.environment)]
    (job.run_dir / "nodes").mkdir(parents=True)  # as launch.sh does: the nodes would make it at the same time
    return [
        (node.command(job.command), environment(job, nodes, number, gpu))
        for number, (node, gpu) in enumerate(zip_longest(nodes, gpus))
    ]


def run_with_times(
    tasks: Sequence[Task], folder: Path, output: Path, limit_s: float, watch: Callable[[Sequence[int]], None]
) -> tuple[int, float]:
    """Run the tasks of a job in ``folder``; prefix each line of the head's output with the time.

    A job beyond the limit gets TERM, then KILL. Calls ``watch`` with the pids of the tasks while the head runs. When it
    has ended, the others get END_S, and TERM if it failed, as by srun's --kill-on-bad-exit. Returns the head's exit
    code, and the end of all in epoch seconds.
    """
    with ExitStack() as files:
        processes = []
        for number, (command, environment) in enumerate(tasks):
            to = files.enter_context(output.with_name(f"output-{number}").open("wb")) if number else subprocess.PIPE
            started = subprocess.Popen(command, cwd=folder, env=environment, stdout=to, stderr=subprocess.STDOUT)
            processes.append(started)
    head, *workers = processes

    def copy() -> None:
        assert head.stdout is not None
        with head.stdout, output.open("w", encoding="utf-8") as file:
            for line in head.stdout:
                text = line.decode(errors="replace").rstrip().replace("\r", " ")  # of progress bars
                file.write(f"{time.time():.3f} {text}\n")
                file.flush()

    copier = threading.Thread(target=copy, daemon=True)
    copier.start()
    limit = time.monotonic() + limit_s
    while (code := wait(head, WATCH_S)) is None and time.monotonic() < limit:
        watch([process.pid for process in processes if process.poll() is None])
    if code is None:
        print(f"{output.parent.name}: TERM after {limit_s:.0f} s", flush=True)
        terminate(processes)
        code = wait(head, END_S)
        code = 124 if code == 0 else code
    elif code:
        terminate(workers)
    codes = [wait(process, END_S) for process in workers]
    for process in processes:
        process.kill()
    code = head.wait() if code is None else code
    ended = time.time()
    for (command, environment), ended_with in zip(tasks, (code, *codes)):
        if ended_with is None or ended_with < 0 or ended_with == 128 + signal.SIGKILL:
            subprocess.run([*command, "sweep"], env=environment, check=True, capture_output=True)
    copier.join(10)
    return code, ended


def write_result(job: Job, hosts: Sequence[str]) -> None:
    """Write result.json of the head's verdict; without one, of a head that was killed, there is none."""
    if (job.run_dir / "nodes" / f"0-{hosts[0]}" / "verdict").exists():
        argv = ["bash", "-euc", RESULT, "-", str(job.run_dir), job.environment["VERLJOB_ATTEMPT"], *hosts]
        subprocess.run(argv, env=job.environment, check=True)


def terminate(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Send TERM to all processes of the tasks, as Slurm does."""
    for pid in {pid for process in processes if process.poll() is None for pid in process_tree(process.pid)}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def wait(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """Return the exit code of a process, None if it still runs after the limit."""
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
