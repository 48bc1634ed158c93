"""Signals of bench/gpu/training.py to a running job, a missing package, and what a job leaves on the machine."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.gpu.gpu_job import Job, parents, process_tree, used_mib

SIGNALLED = ("term", "kill", "lost")
KINDS = (*SIGNALLED, "missing")
ENGINE = re.compile(rb"VLLM::EngineCore")  # title by setproctitle; its workers are VLLM::Worker
MISSING = "openai_harmony"
ROLLOUT_S = 5  # after a step was logged, the rollout of the next one is running
FREE_S = 10  # for the driver, to free a killed process's memory
LEFT_S = 30  # for everything else of a job
TEMPORARY, SHARED = Path("/tmp"), Path("/dev/shm")  # noqa: S108 # of node.sh; what is new there is found, not used


class Signal:
    """The signal of a term, kill or lost job: in the rollout after the first logged step."""

    def __init__(self, kind: str, job: Job) -> None:
        self.kind = kind
        self.job = job
        self.due: float | None = None
        self.sent: float | None = None
        """Epoch seconds."""

    def send_when_due(self, nodes: Sequence[int]) -> None:
        """Send it once: TERM to the process trees of ``nodes``, as Slurm does; KILL to vLLM's engine or the last."""
        if self.kind not in SIGNALLED or self.sent:
            return
        if self.due is None:
            with suppress(ValueError):  # a line may be incomplete
                self.due = time.time() + ROLLOUT_S if self.job.rows() else None
        elif time.time() >= self.due:
            trees = [sorted(process_tree(node)) for node in nodes]
            pids = trees[-1] if self.kind == "lost" else [pid for tree in trees for pid in tree]
            if self.kind == "kill":
                pids = [pid for pid in pids if ENGINE.match(proc(pid, "cmdline"))][:1]
            self.sent = time.time() if pids else None
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM if self.kind == "term" else signal.SIGKILL)

    def problems(self) -> list[str]:
        if self.kind not in SIGNALLED or self.sent:
            return []
        return ["no signal was sent: " + ("no step was logged" if self.due is None else "vLLM's engine was not found")]


class Leftovers:
    """Processes, shared memory and files in /tmp and in node-local ``folders`` that a job leaves.

    A process is the job's if it was once in the tree of a node.sh of its, or by its environment. Files may also be of
    another job: they are counted only if the job is ``alone`` on the machine.
    """

    def __init__(self, number: int, folders: Sequence[Path] = (), *, alone: bool = True) -> None:
        self.mark = f"SLURM_JOB_ID={number}".encode()
        self.folders = folders
        self.alone = alone
        self.files = files(folders)
        self.processes: dict[int, bytes] = {}

    def note(self, nodes: Sequence[int]) -> None:
        """Note the processes of the trees of ``nodes``."""
        self.processes |= {pid: began(pid) for node in nodes for pid in process_tree(node)}

    def found(self) -> list[str]:
        live = [
            pid
            for pid in sorted(parents())
            if self.processes.get(pid) == began(pid) or self.mark in proc(pid, "environ").split(b"\0")
        ]
        titles = [proc(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()[:80] for pid in live]
        left = sorted(files(self.folders) - self.files) if self.alone else []
        return [f"process {pid} {title}" for pid, title in zip(live, titles)] + left


def wait_clean(ended: float, gpus: Sequence[str], used_before: Sequence[int], leftovers: Leftovers) -> dict[str, Any]:
    """Wait until the GPUs use no more memory than before and nothing is left.

    Returns the seconds since ``ended`` for both, None after the limits FREE_S and LEFT_S, and what is left.
    """
    freed_s = left_s = None
    while True:
        since = round(time.time() - ended, 1)
        used = used_mib(gpus) if gpus and freed_s is None else []
        if freed_s is None and all(mib <= idle + 64 for mib, idle in zip(used, used_before)):
            freed_s = since
        left = leftovers.found() if left_s is None else []
        if not left and left_s is None:
            left_s = since
        if (freed_s is not None or since > FREE_S) and (left_s is not None or since > LEFT_S):
            return {"freed_s": freed_s, "left_s": left_s, "left": left}
        time.sleep(0.5)


def find_problems(kind: str, code: int, rows: Sequence[dict[str, Any]], output: str) -> list[str]:
    """Return a phrase for each property of a sound end that is missing."""
    found = []
    if (code != 143) if kind == "term" else (code <= 0 or code in (124, 143)):  # 124 and 143: it took too long
        found.append(f"exit code {code}")
    if kind == "missing":
        found += ["a step was logged"] if rows else []
        found += ["the training began"] if "Training Progress" in output else []
        found += [f"the output does not name {MISSING}"] if MISSING not in output else []
    return found


def package_folder(name: str) -> Path | None:
    """Return the folder of an installed package, None if it is not below sys.prefix."""
    spec = find_spec(name)
    folder = Path(spec.origin).parent if spec and spec.origin else None
    return folder if folder and Path(sys.prefix).resolve() in folder.resolve().parents else None


@contextmanager
def moved_away(folder: Path) -> Iterator[None]:
    """Give a folder another name meanwhile."""
    aside = folder.rename(folder.with_name(f"{folder.name}.aside"))
    try:
        yield
    finally:
        aside.rename(folder)


def began(pid: int) -> bytes:
    """Return when a process began, in clock ticks; empty if it has ended."""
    return b"".join(proc(pid, "stat").rpartition(b")")[2].split()[19:20])


def proc(pid: int, name: str) -> bytes:
    """Return a file of /proc, empty for a process that has ended or is another account's."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def files(folders: Sequence[Path]) -> set[str]:
    """Return what is in ``folders``, shared memory, /tmp, and the folder of port locks, which itself stays there."""
    locks = TEMPORARY / "verljob-ports"
    all_folders = (TEMPORARY, SHARED, locks, *folders)
    found = {path for folder in all_folders if folder.exists() for path in folder.iterdir()}
    return set(map(str, found - {locks}))
