"""`invoke profile --check`: what the site's sbatch would refuse, and variables that their vendor calls obsolete."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase

from slurm.jobs import check
from slurm.jobs.profile import Profile
from slurm.jobs.profile_flags import GPU_FLAGS, INPUTS, Flag, Request, flags, gpu_flag

_UNLIMITED = 1 << 30
_AWS = "https://github.com/awslabs/awsome-distributed-ai/blob/95b939c/1.architectures/efa-cheatsheet.md"
_OLCF = "https://github.com/olcf/olcf-user-docs/blob/2745903/software/analytics/pytorch_frontier.rst"


@dataclass(frozen=True)
class Obsolete:
    """Assignments that a vendor calls obsolete or harmful: a pattern for `NAME=value`, the reason, and the page."""

    pattern: str
    reason: str
    source: str


OBSOLETE = (
    Obsolete("FI_PROVIDER=efa", "only for aws-ofi-nccl 1.5 and older", _AWS),
    Obsolete("NCCL_PROTO=[sS]imple", "only for aws-ofi-nccl 1.5 and older", _AWS),
    Obsolete("RDMAV_*=*", "do not use: it can break programs on newer kernels", _AWS),
    Obsolete("FI_EFA_FORK_SAFE=*", "without effect from kernel 5.15 on", _AWS),
    Obsolete("FI_EFA_USE_DEVICE_RDMA=*", "not for libfabric 1.18, aws-ofi-nccl 1.7 and newer", _AWS),
    Obsolete("FI_EFA_ENABLE_SHM_TRANSFER=*", "without effect: it is the default", _AWS),
    Obsolete("FI_MR_CACHE_MONITOR=memhooks", "deadlocks with RCCL's plugin", _OLCF),
)


@dataclass(frozen=True)
class Limit:
    """A limit of the jobs with a flag: most nodes and longest time, in a format of sbatch."""

    flag: str
    nodes: int
    time: str
    origin: str


def findings(profile: Profile, request: Request, today: date) -> list[str]:
    """Return what sbatch or the fabric would refuse, each with its reason and fix."""
    passed = flags(profile, request, today)
    return [
        *_missing(profile, passed),
        *_forbidden(profile, passed),
        *_gpu_words(profile, request),
        *_beyond_limits(profile, passed, request),
        *_bad_nodes(profile, request),
        *_obsolete(profile, request),
    ]


def obsolete(name: str, value: str) -> Obsolete | None:
    """Return why a vendor calls this assignment obsolete, if one does."""
    return next((each for each in OBSOLETE if fnmatchcase(f"{name}={value}", each.pattern)), None)


def applying_limits(profile: Profile, passed: Iterable[Flag]) -> list[Limit]:
    """Return the limits of the flags that are passed, the one with the fewest nodes first."""
    chosen = {flag.text for flag in passed}
    limits = [
        Limit(
            str(content.get("flag")),
            int(str(content.get("nodes", _UNLIMITED))),
            str(content.get("time", "")),
            profile.origin(f"limits.{name}"),
        )
        for name, content in profile.named("limits")
        if content.get("flag") in chosen
    ]
    return sorted(limits, key=lambda limit: limit.nodes)


def _missing(profile: Profile, passed: Iterable[Flag]) -> Iterator[str]:
    for flag in passed:
        for name in re.findall(r"<([a-z_-]+)>", flag.text):
            own = f'or write a file of your own with the lines site = "{profile.name}", [values], {name} = "…"'
            has_placeholder = any(f"{{{name}}}" in text for text in profile.get("sbatch", "flags", []))
            if name == "type":
                own = 'or write [gpus], type = "…" in your own file (sinfo -o %G lists the types)'
            yield f"{flag.text} has no value: give {flag.name}=… to sbatch" + (
                f", {own}." if has_placeholder or name == "type" else "."
            )


def _forbidden(profile: Profile, passed: Iterable[Flag]) -> Iterator[str]:
    forbidden = profile.get("sbatch", "forbidden", [])
    for flag in passed:
        if flag.name in forbidden or flag.text in forbidden:
            variables = [name for name, each in INPUTS.items() if f"--{each}" == flag.name]
            unset = f", and unset {variables[0]}" if variables else ""
            yield f"{flag.text} is refused by the site's sbatch ({profile.origin('sbatch')}): leave it out{unset}."


def _gpu_words(profile: Profile, request: Request) -> Iterator[str]:
    wanted, most = gpu_flag(profile), int(profile.get("gpus", "per_node", 0))
    origin, forbidden = profile.origin("gpus"), profile.get("sbatch", "forbidden", [])
    given = {name: value for name, value in request.given().items() if name in GPU_FLAGS}
    for name, value in given.items():
        flag, count = f"--{name}={value}", value.rpartition(":")[2]
        if f"--{name}" in forbidden or (name == "gres" and "gpu" not in value):
            continue
        if not wanted:
            yield f"{flag}: Slurm does not count GPUs here, a node's {most} are the job's ({origin}): leave it out."
        elif name != wanted.partition("=")[0][2:] or flag.count(":") != wanted.count(":"):
            yield f"{flag}: GPUs are requested by {wanted} here ({origin})."
        elif count.isdecimal() and most and int(count) > most:
            yield f"{flag}: a node has {most} GPUs ({origin})."


def _beyond_limits(profile: Profile, passed: Sequence[Flag], request: Request) -> Iterator[str]:
    limits, time = applying_limits(profile, passed), request.given().get("time", "")
    fitting = [limit for limit in limits if limit.nodes >= request.nodes]
    if limits and not fitting:
        most = limits[-1]
        yield f"--nodes={request.nodes}: a job with {most.flag} has at most {most.nodes} nodes ({most.origin})."
    elif fitting and time and fitting[0].time and check.minutes(time) > check.minutes(fitting[0].time):
        first = fitting[0]
        yield f"--time={time}: {request.nodes} nodes with {first.flag} have at most {first.time} ({first.origin})."


def _bad_nodes(profile: Profile, request: Request) -> Iterator[str]:
    named = request.given().get("nodelist", "").split(",")
    for name, content in profile.named("bad_nodes"):
        if name in named:
            yield f"--nodelist has {name}: {content.get('reason')} ({profile.origin(f'bad_nodes.{name}')})."


def _obsolete(profile: Profile, request: Request) -> Iterator[str]:
    ours = [(setting.name, setting.value, f"in {setting.table}") for setting in profile.settings()]
    exported = [(name, value, "exported") for name, value in sorted(request.environ.items())]
    for name, value, where in [*ours, *exported]:
        if found := obsolete(name, value):
            yield f"{name}={value}, {where}: {found.reason} ({found.source}): remove it."
