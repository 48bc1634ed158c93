"""Kernel events of this node's cgroup: processes killed for memory, forks refused.

Exit codes do not show them, so the counters are read at every failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class _Counter:
    controller: str
    version_2: str
    version_1: str
    key: str


_KILLED = _Counter("memory", "memory.events", "memory.oom_control", "oom_kill")
_REFUSED = _Counter("pids", "pids.events", "pids.events", "max")


@dataclass(frozen=True)
class KernelEvents:
    """Sentences about the kernel's actions on this cgroup, and their class of failure."""

    text: str = ""
    failure_class: str = ""


def read(memory_bytes: int | None, *, root: Path = _ROOT, own: Path = Path("/proc/self/cgroup")) -> KernelEvents:
    """Read the counters of killed processes and refused forks; ``memory_bytes`` is the job's memory."""
    sentences = []
    killed = _count(_KILLED, root, own)
    if killed:
        limit = f"; the job has {memory_bytes / (1 << 30):.1f} GiB (sbatch --mem)" if memory_bytes else ""
        victims = "a process" if killed == 1 else f"{killed} processes"
        sentences.append(f"The kernel killed {victims} on this node for lack of memory{limit}.")
    if _count(_REFUSED, root, own):
        sentences.append(
            "The kernel refused new processes on this node: it reached its limit of processes and threads (pids)."
        )
    return KernelEvents(" ".join(sentences), "memory" if killed else "slurm-container" if sentences else "")


def _count(counter: _Counter, root: Path, own: Path) -> int:
    """Read a counter of our cgroup; in a container its path is that of the host, and it is mounted as the root."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        _, controllers, path = line.split(":", 2)
        inside = path.lstrip("/")
        if not controllers:
            candidates = [root / inside / counter.version_2, root / counter.version_2]
        elif counter.controller in controllers.split(","):
            folder = root / counter.controller
            candidates = [folder / inside / counter.version_1, folder / counter.version_1]
        else:
            continue
        for file in candidates:
            value = _read(file, counter.key)
            if value is not None:
                return value
    return 0


def _read(file: Path, key: str) -> int | None:
    try:
        pairs = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return None
    return next((int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] == key), None)
