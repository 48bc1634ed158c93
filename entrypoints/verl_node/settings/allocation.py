"""The Slurm allocation: its nodes, this node's number, GPUs and CPUs; the parser of Slurm's host lists."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from verl_node.errors import BadSettings

_RANGE = re.compile(r"(\d+)-(\d+)")
_MAX_HOSTS = 1 << 16  # Slurm's own MAX_RANGE is of this order; more is a typo


@dataclass(frozen=True)
class Allocation:
    """The nodes of the job in Slurm's order (no names without Slurm), the number of this node, and its resources."""

    job_id: str
    hosts: tuple[str, ...]
    nodes: int
    node_id: int
    host: str
    gpus: int | None
    cpus: int
    end_time: float | None

    @classmethod
    def from_variables(cls, environ: Mapping[str, str]) -> Allocation:
        """Read Slurm's variables; without SLURM_JOB_ID this is a cluster of one node.

        SLURM_JOB_NODELIST is parsed, and compared with the output of `scontrol show hostnames` on the host
        (VERLJOB_NODELIST_HOSTS). Raises BadSettings if the variables contradict each other.
        """
        hosts = _hosts(environ)
        nodes = number(environ, "SLURM_NNODES", len(hosts) or 1)
        node_id = number(environ, "SLURM_NODEID", 0)
        if hosts and len(hosts) != nodes:
            raise _contradiction(f"SLURM_JOB_NODELIST names {len(hosts)} hosts, but SLURM_NNODES is {nodes}")
        if not node_id < nodes:
            raise _contradiction(f"SLURM_NODEID is {node_id}, but SLURM_NNODES is {nodes}")
        host = environ.get("SLURMD_NODENAME") or (hosts[node_id] if hosts else socket.gethostname())
        if hosts and host != hosts[node_id]:
            raise _contradiction(f"this is {host}, but node {node_id} of SLURM_JOB_NODELIST is {hosts[node_id]}")
        cpus = number(environ, "SLURM_CPUS_PER_TASK", number(environ, "SLURM_CPUS_ON_NODE", 0))
        return cls(
            job_id=environ.get("SLURM_JOB_ID", ""),
            hosts=hosts,
            nodes=nodes,
            node_id=node_id,
            host=host,
            gpus=_gpus(environ),
            cpus=number(environ, "VERLJOB_CPUS", cpus or len(os.sched_getaffinity(0))),
            end_time=number(environ, "SLURM_JOB_END_TIME", 0) or None,
        )


def number(environ: Mapping[str, str], name: str, default: int) -> int:
    """Return a whole number ≥ 0 from a variable that may be unset or empty. Raises BadSettings."""
    value = environ.get(name, "").strip()
    if not value:
        return default
    if not (value.isascii() and value.isdigit()):
        raise BadSettings(f"{name} is {value!r}, which is not a whole number.", fix=f"Unset or correct {name}.")
    return int(value)


def _gpus(environ: Mapping[str, str]) -> int | None:
    """Return the GPUs of this node in the Slurm step, None outside of an allocation with GPUs.

    SLURM_GPUS_ON_NODE of the step is right for --gres, --gpus and --gpus-per-task alike; SLURM_GPUS_PER_NODE may be
    missing, so it is only compared. Raises BadSettings if the two disagree.
    """
    on_node, per_node = (_gpu_count(environ, f"SLURM_GPUS_{name}_NODE") for name in ("ON", "PER"))
    if on_node is not None and per_node is not None and on_node != per_node:
        raise BadSettings(
            f"SLURM_GPUS_ON_NODE is {on_node}, but SLURM_GPUS_PER_NODE is {environ['SLURM_GPUS_PER_NODE']!r}: "
            f"the step did not get every GPU of its job.",
            fix="Start the step with the GPUs of the job (srun without its own --gres or --gpus).",
        )
    return per_node if on_node is None else on_node


def _gpu_count(environ: Mapping[str, str], name: str) -> int | None:
    """Parse ``8``, ``mi300x:8`` or ``a100:4,h100:4`` (their sum)."""
    value = environ.get(name, "").strip()
    if not value:
        return None
    try:
        return sum(int(part.rpartition(":")[2]) for part in value.split(","))
    except ValueError:
        raise BadSettings(
            f"{name} is {value!r}, which is neither a number nor a type and a number such as mi300x:8.",
            fix="Ask Slurm for GPUs with --gpus-per-node=8 or --gres=gpu:mi300x:8.",
        ) from None


def _hosts(environ: Mapping[str, str]) -> tuple[str, ...]:
    nodelist = environ.get("SLURM_JOB_NODELIST", "")
    hosts = tuple(expand_hosts(nodelist)) if nodelist else ()
    expanded = tuple(filter(None, environ.get("VERLJOB_NODELIST_HOSTS", "").split(",")))
    if hosts and expanded and hosts != expanded:
        raise _contradiction(
            f"SLURM_JOB_NODELIST {nodelist!r} reads as {','.join(hosts)}, but scontrol says {','.join(expanded)}"
        )
    return hosts or expanded


def _contradiction(what: str) -> BadSettings:
    return BadSettings(
        f"Slurm's variables contradict each other: {what}.",
        fix="Start the nodes with slurm/launch.sh, which runs one task on each node of the job.",
    )


def expand_hosts(text: str) -> list[str]:
    """Return the hosts of a Slurm host list such as ``gpu[01-03,7],login``, as ``scontrol show hostnames`` prints them.

    Parses several brackets in a name, brackets in brackets, suffixes and zero padding. Raises BadSettings.
    """
    hosts: list[str] = []
    for name in _split(text):
        hosts += _expand_name(name, text)
        if len(hosts) > _MAX_HOSTS:
            raise _unreadable_list(text, f"it names more than {_MAX_HOSTS} hosts")
    return hosts


def _expand_name(name: str, whole: str) -> list[str]:
    parts = [_expand_bracket(part[1:-1], whole) if part.startswith("[") else [part] for part in _parts(name, whole)]
    if not parts:
        raise _unreadable_list(whole, "a name is missing")
    size = 1
    for part in parts:
        size *= len(part)
    if size > _MAX_HOSTS:
        raise _unreadable_list(whole, f"it names more than {_MAX_HOSTS} hosts")
    return ["".join(pieces) for pieces in product(*parts)]


def _expand_bracket(inside: str, whole: str) -> list[str]:
    names: list[str] = []
    for item in _split(inside):
        limits = _RANGE.fullmatch(item)
        if limits is None:
            names += _expand_name(item, whole)
            continue
        first, last = int(limits[1]), int(limits[2])
        if not first <= last < first + _MAX_HOSTS:
            raise _unreadable_list(whole, f"the range {item} is empty or too long")
        names += [str(number).zfill(len(limits[1])) for number in range(first, last + 1)]
    return names


def _parts(name: str, whole: str) -> Iterator[str]:
    """Split ``a[1-2]b`` into ``a``, ``[1-2]`` and ``b``, by the outermost brackets."""
    start = depth = 0
    for position, character in enumerate(name):
        if character == "[":
            if depth == 0 and position > start:
                yield name[start:position]
            start = position if depth == 0 else start
            depth += 1
        elif character == "]":
            depth -= 1
            if depth == 0:
                yield name[start : position + 1]
                start = position + 1
        if depth < 0:
            break
    if depth != 0:
        raise _unreadable_list(whole, "its brackets do not match")
    if start < len(name):
        yield name[start:]


def _split(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    start = depth = 0
    for position, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def _unreadable_list(text: str, why: str) -> BadSettings:
    return BadSettings(
        f"The host list {text!r} cannot be read: {why}.",
        fix="Compare SLURM_JOB_NODELIST with `scontrol show hostnames`.",
    )
