"""Limits of the process, which Ray's and NCCL's children inherit."""

from __future__ import annotations

import resource
from pathlib import Path

from verl_node import platforms
from verl_node.checks.answer import OK, Result
from verl_node.settings import Settings

# Ray alone was seen with 1659 threads on one node ("pthread_create failed", verl#719). Docker and podman may have a
# default of 2048 for a container.
PROCESSES = 4096
# A container sees its own cgroup here: version 2's file, version 1's.
PIDS_MAX = (Path("/sys/fs/cgroup/pids.max"), Path("/sys/fs/cgroup/pids/pids.max"))


def open_files_suffice(settings: Settings, gpus: int) -> Result:
    """The soft limit is raised to the hard one first; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _at_least(hard, platforms.of(settings.platform).open_files, "open files", "ulimit nofile", "fail")


def processes_suffice(settings: Settings, gpus: int) -> Result:
    """Threads count as processes here; the account has a limit, and the container's cgroup may have one."""
    of_account = _at_least(
        resource.getrlimit(resource.RLIMIT_NPROC)[0], PROCESSES, "processes and threads", "ulimit nproc", "warn"
    )
    return (
        of_account
        if of_account != OK
        else _at_least(pids_max(), PROCESSES, "processes and threads of the container", "pids-limit", "warn")
    )


def pids_max() -> int:
    """Return how many processes and threads the cgroup may hold, RLIM_INFINITY where it says no number."""
    told = [file.read_text().strip() for file in PIDS_MAX if file.exists()]
    return int(told[0]) if told and told[0].isdigit() else resource.RLIM_INFINITY


def memory_can_be_locked(settings: Settings, gpus: int) -> Result:
    """Only where GPUs talk over a fabric; on Ethernet alone a limit does no harm."""
    if not platforms.of(settings.platform).locks_memory:
        return OK
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        return OK
    return Result(
        "warn", f"{limit} bytes may be locked, RDMA wants no limit.", "Start the container with --ulimit memlock=-1."
    )


def _at_least(limit: int, wanted: int, what: str, flag: str, severity: str) -> Result:
    if limit == resource.RLIM_INFINITY or limit >= wanted:
        return OK
    return Result(
        severity,
        f"{limit} {what} are allowed, at least {wanted} are wanted.",
        f"Start the container with --{flag}={wanted}; without one it is the step's limit, which slurmd gives.",
    )
