"""Limits of the process, which Ray's and NCCL's children inherit."""

from __future__ import annotations

import resource
from pathlib import Path

from verl_node.checks.check import check
from verl_node.checks.node import rdma
from verl_node.checks.result import OK, Result
from verl_node.gpu import platforms
from verl_node.network import rails
from verl_node.settings.settings import Settings

# Ray alone was seen with 1659 threads on one node ("pthread_create failed", verl#719). Docker and podman may have a
# default of 2048 for a container.
PROCESSES = 4096
# A container sees its own cgroup here: version 2's file, version 1's.
TRACING = Path("/proc/sys/kernel/yama/ptrace_scope")
MEMORY_MAX = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
PIDS_MAX = (Path("/sys/fs/cgroup/pids.max"), Path("/sys/fs/cgroup/pids/pids.max"))


def raise_open_files() -> None:
    """Raise the soft limit of this process, which its children inherit, to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@check("slurm-container")
def open_files_suffice(settings: Settings, gpus: int) -> Result:
    """The hard limit of open files, to which every node raises its own."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return _at_least(hard, platforms.find(settings.platform).open_files, "open files", "ulimit nofile", "fail")


@check("slurm-container", threshold=PROCESSES)
def processes_suffice(settings: Settings, gpus: int, least: float) -> Result:
    """Threads count as processes here; the account has a limit, and the container's cgroup may have one."""
    wanted = int(least)
    of_account = _at_least(
        resource.getrlimit(resource.RLIMIT_NPROC)[0], wanted, "processes and threads", "ulimit nproc", "warn"
    )
    return (
        of_account
        if of_account != OK
        else _at_least(pids_max(), wanted, "processes and threads of the container", "pids-limit", "warn")
    )


def pids_max() -> int:
    """Return how many processes and threads the cgroup may hold, RLIM_INFINITY where it says no number."""
    told = next(filter(None, map(_read, PIDS_MAX)), "")
    return int(told) if told.isdigit() else resource.RLIM_INFINITY


def _read(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""


@check("nccl")
def memory_can_be_locked(settings: Settings, gpus: int) -> Result:
    """No limit where GPUs talk over RDMA, which registers their buffers; on Ethernet alone a limit does no harm."""
    if not platforms.find(settings.platform).locks_memory:
        return OK
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        return OK
    needed = settings.allocation.nodes > 1 and bool(rails.choose(rdma.here()).ports)
    return Result(
        "fail" if needed else "warn",
        f"{limit} bytes may be locked, RDMA wants no limit.",
        "Start the container with --ulimit memlock=-1.",
        "no limit",
    )


@check("memory", threshold=8.0, severity="warn")
def memory_suffices(settings: Settings, gpus: int, gib_per_gpu: float) -> Result:
    """The job's memory holds a worker of verl a GPU: a partition's default may be a few GB."""
    wanted = gib_per_gpu * gpus * platforms.GIB
    if (
        settings.memory_bytes is None
        or settings.memory_bytes >= wanted
        or not platforms.find(settings.platform).devices
    ):
        return OK
    return Result(
        "warn",
        f"The job has {settings.memory_bytes / platforms.GIB:.0f} GiB of memory on this node for {gpus} GPUs.",
        "Ask for more: sbatch --mem=0 (all of the node), or as much as docs/platforms.md says.",
        f"{gib_per_gpu:g} GiB a GPU",
    )


@check("memory", threshold=0.9, severity="warn")
def cgroup_holds_the_memory(settings: Settings, gpus: int, least: float) -> Result:
    """The cgroup allows what Slurm says the job has: Ray counts on that, and the kernel kills for less."""
    limits = [int(text) for text in map(_read, MEMORY_MAX) if text.isdigit()]
    wanted = settings.memory_bytes
    if wanted is None or not limits or min(limits) >= least * wanted:
        return OK
    return Result(
        "warn",
        f"The cgroup allows {min(limits) / platforms.GIB:.1f} GiB here, and the job has {wanted / platforms.GIB:.1f}.",
        "Say the smaller number to sbatch: --mem; or ask the site why its cgroup is tighter.",
        f"{least:g} of the job's memory",
    )


@check("debug-logs", severity="warn")
def processes_can_be_traced(settings: Settings, gpus: int) -> Result:
    """The stacks of a training that hangs can be read: ptrace of one's own children is allowed."""
    scope = TRACING.read_text().strip() if TRACING.exists() else "0"
    if scope in ("0", "1"):  # all processes of the account; descendants alone, which is enough
        return OK
    return Result(
        "warn",
        f"kernel.yama.ptrace_scope is {scope}: py-spy cannot read a hanging process here.",
        "Ask the site for kernel.yama.ptrace_scope=1; without it a hang is reported without stacks.",
        "0 or 1",
    )


def _at_least(limit: int, wanted: int, what: str, flag: str, severity: str) -> Result:
    if limit == resource.RLIM_INFINITY or limit >= wanted:
        return OK
    return Result(
        severity,
        f"{limit} {what} are allowed, at least {wanted} are wanted.",
        f"Start the container with --{flag}={wanted}; without one it is the step's limit, which slurmd gives.",
    )
