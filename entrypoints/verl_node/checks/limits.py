"""Limits of the process, which Ray's and NCCL's children inherit."""

from __future__ import annotations

import resource

from verl_node.checks.answer import OK, Result
from verl_node.settings import Settings

# Ray opens some 20 files a worker process on the head, and stops accepting at the limit (verl#2047, verl#3642).
OPEN_FILES = {"cpu": 4096, "cuda": 65536, "rocm": 65536}
# Ray alone was seen with 1659 threads on one node ("pthread_create failed", verl#719).
PROCESSES = 4096
# RDMA registers GPU buffers as locked memory ("ibv_reg_mr … Cannot allocate memory", nccl-tests#206).
LOCKED_ON = ("cuda", "rocm")


def open_files_suffice(settings: Settings, gpus: int) -> Result:
    """The soft limit is raised to the hard one first; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _at_least(hard, OPEN_FILES.get(settings.platform, 4096), "open files", "nofile", "fail")


def processes_suffice(settings: Settings, gpus: int) -> Result:
    """Threads count as processes here."""
    return _at_least(resource.getrlimit(resource.RLIMIT_NPROC)[0], PROCESSES, "processes and threads", "nproc", "warn")


def memory_can_be_locked(settings: Settings, gpus: int) -> Result:
    """Only where GPUs talk over a fabric; on Ethernet alone a limit does no harm."""
    if settings.platform not in LOCKED_ON:
        return OK
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        return OK
    return Result(
        "warn", f"{limit} bytes may be locked, RDMA wants no limit.", "Start the container with --ulimit memlock=-1."
    )


def _at_least(limit: int, wanted: int, what: str, name: str, severity: str) -> Result:
    if limit == resource.RLIM_INFINITY or limit >= wanted:
        return OK
    return Result(
        severity,
        f"{limit} {what} are allowed, at least {wanted} are wanted.",
        f"Start the container with --ulimit {name}={wanted}.",
    )
