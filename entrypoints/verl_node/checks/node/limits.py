"""Limits of the process, which Ray's and NCCL's children inherit, and of its memory."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from verl_node.checks.check import check
from verl_node.checks.node import rdma
from verl_node.checks.result import OK, Result
from verl_node.gpu import platforms
from verl_node.gpu.platforms import GIB
from verl_node.network import rails
from verl_node.settings.settings import Settings

# Ray itself was seen with 1659 threads on one node ("pthread_create failed", verl#719). Docker and podman may have a
# default of 2048 for a container.
PROCESSES = 4096
TRACING = Path("/proc/sys/kernel/yama/ptrace_scope")
# The container's own cgroup: version 2's file, version 1's.
MEMORY_MAX = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
PIDS_MAX = (Path("/sys/fs/cgroup/pids.max"), Path("/sys/fs/cgroup/pids/pids.max"))


def raise_open_files() -> None:
    """Raise the soft limit of this process to the hard one; its children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@check("slurm-container", group="memory")
def shared_memory_is_large(settings: Settings, gpus: int) -> Result:
    """The size of /dev/shm, used or free, for Ray's object store and NCCL."""
    size = shared_memory_bytes()
    least, recommended = platforms.find(settings.platform).shared
    if size >= recommended:
        return OK
    seen = f"/dev/shm has {size / GIB:.1f} GiB, {recommended / GIB:.0f} GiB are required."  # noqa: S108  no temp file
    severity = "fail" if size < least else "warn"
    return Result(severity, seen, f"Start the container with --shm-size={recommended // GIB}g.")


def shared_memory_bytes() -> int:
    """Return the size of /dev/shm, 0 if it does not exist."""
    try:
        found = os.statvfs("/dev/shm")  # noqa: S108
    except OSError:
        return 0
    return found.f_frsize * found.f_blocks


@check("slurm-container")
def open_files_suffice(settings: Settings, gpus: int) -> Result:
    """The hard limit of open files, to which every node raises its soft limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return _at_least(hard, platforms.find(settings.platform).open_files, "open files", "ulimit nofile", "fail")


@check("slurm-container", threshold=PROCESSES)
def processes_suffice(settings: Settings, gpus: int, least: float) -> Result:
    """Limits of processes and threads, the account's and the cgroup's."""
    count = int(least)
    of_account = _at_least(
        resource.getrlimit(resource.RLIMIT_NPROC)[0], count, "processes and threads", "ulimit nproc", "warn"
    )
    return (
        of_account
        if of_account != OK
        else _at_least(pids_max(), count, "processes and threads of the container", "pids-limit", "warn")
    )


def pids_max() -> int:
    """Return the cgroup's limit of processes and threads, RLIM_INFINITY if it has none."""
    text = next(filter(None, map(_read, PIDS_MAX)), "")
    return int(text) if text.isdigit() else resource.RLIM_INFINITY


def _read(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""


@check("nccl")
def memory_can_be_locked(settings: Settings, gpus: int) -> Result:
    """Locked memory is unlimited if GPUs use RDMA, which registers their buffers."""
    if not platforms.find(settings.platform).locks_memory:
        return OK
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        return OK
    needed = settings.allocation.nodes > 1 and bool(rails.choose(rdma.read_hcas()).ports)
    return Result(
        "fail" if needed else "warn",
        f"Locked memory is limited to {limit} bytes; RDMA needs it unlimited.",
        "Start the container with --ulimit memlock=-1.",
        "no limit",
    )


@check("memory", threshold=8.0, severity="warn")
def memory_suffices(settings: Settings, gpus: int, gib_per_gpu: float) -> Result:
    """The job has memory for one worker of verl per GPU: a partition's default may be a few GB."""
    required = gib_per_gpu * gpus * GIB
    if (
        settings.memory_bytes is None
        or settings.memory_bytes >= required
        or not platforms.find(settings.platform).devices
    ):
        return OK
    return Result(
        "warn",
        f"The job has {settings.memory_bytes / GIB:.0f} GiB of memory on this node for {gpus} GPUs.",
        "Request more: sbatch --mem=0 (the whole node), or the amount in docs/platforms.md.",
        f"{gib_per_gpu:g} GiB per GPU",
    )


@check("memory", threshold=0.9, severity="warn")
def cgroup_holds_the_memory(settings: Settings, gpus: int, least: float) -> Result:
    """The cgroup allows the memory that Slurm reports, on which Ray relies."""
    limits = [int(text) for text in map(_read, MEMORY_MAX) if text.isdigit()]
    memory = settings.memory_bytes
    if memory is None or not limits or min(limits) >= least * memory:
        return OK
    return Result(
        "warn",
        f"The cgroup allows {min(limits) / GIB:.1f} GiB, and the job has {memory / GIB:.1f} GiB.",
        "Pass the smaller number to sbatch --mem; or ask the site why its cgroup is tighter.",
        f"{least:g} of the job's memory",
    )


@check("debug-logs", severity="warn")
def processes_can_be_traced(settings: Settings, gpus: int) -> Result:
    """The kernel allows ptrace of child processes, for the stacks of a hanging training."""
    scope = TRACING.read_text().strip() if TRACING.exists() else "0"
    if scope in ("0", "1"):  # all processes of the account; only descendants, which is enough
        return OK
    return Result(
        "warn",
        f"kernel.yama.ptrace_scope is {scope}: py-spy cannot read a hanging process.",
        "Ask the site for kernel.yama.ptrace_scope=1; otherwise a hang is reported without stacks.",
        "0 or 1",
    )


def _at_least(limit: int, least: int, what: str, flag: str, severity: str) -> Result:
    if limit == resource.RLIM_INFINITY or limit >= least:
        return OK
    return Result(
        severity,
        f"{limit} {what} are allowed, at least {least} are required.",
        f"Start the container with --{flag}={least}; without a container slurmd sets the step's limit.",
    )
