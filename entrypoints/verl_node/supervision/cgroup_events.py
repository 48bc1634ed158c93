"""Kernel events of this node's cgroup: processes killed for memory, forks refused.

Its victims end with a code that says nothing of it, so the counters are read and told with every failure.
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
    """What the kernel did to processes of this cgroup, as sentences, and the class of failure that it is."""

    words: str = ""
    failure_class: str = ""


def read(memory_bytes: int | None, *, root: Path = _ROOT, own: Path = Path("/proc/self/cgroup")) -> KernelEvents:
    """Read how often this cgroup had processes killed for memory or forks refused; ``memory_bytes`` is the job's."""
    said = []
    killed = _count(_KILLED, root, own)
    if killed:
        limit = f"; the job has {memory_bytes / (1 << 30):.1f} GiB (sbatch --mem)" if memory_bytes else ""
        victims = "a process" if killed == 1 else f"{killed} processes"
        said.append(f"The kernel killed {victims} here for want of memory{limit}.")
    if _count(_REFUSED, root, own):
        said.append("The kernel refused new processes here: the limit of processes and threads (pids) was reached.")
    return KernelEvents(" ".join(said), "memory" if killed else "slurm-container" if said else "")


def _count(counter: _Counter, root: Path, own: Path) -> int:
    """Read a counter of our cgroup; in a container its path is the host's, and the mount shows it as the root."""
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
            found = _read(file, counter.key)
            if found is not None:
                return found
    return 0


def _read(file: Path, key: str) -> int | None:
    try:
        pairs = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return None
    return next((int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] == key), None)
