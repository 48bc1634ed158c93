"""The Slurm allocation, and this node's place in it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from verl_node.errors import BadSettings
from verl_node.settings import allocated_gpus, hostlist


@dataclass(frozen=True)
class Allocation:
    """The nodes of the job in Slurm's order (no names by hand), this one's number among them, and its share."""

    job_id: str
    job_name: str
    hosts: tuple[str, ...]
    nodes: int
    node_id: int
    host: str
    gpus: int | None
    cpus: int
    restart_count: int
    end_time: float | None

    @classmethod
    def from_variables(cls, environ: Mapping[str, str]) -> Allocation:
        """Read Slurm's variables; without SLURM_JOB_ID this is one node of its own.

        SLURM_JOB_NODELIST is read here and compared with what `scontrol show hostnames` said on the host
        (VERLJOB_NODELIST_HOSTS). Raises BadSettings where the variables contradict each other.
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
        given = number(environ, "SLURM_CPUS_PER_TASK", number(environ, "SLURM_CPUS_ON_NODE", 0))
        return cls(
            job_id=environ.get("SLURM_JOB_ID", ""),
            job_name=environ.get("SLURM_JOB_NAME", ""),
            hosts=hosts,
            nodes=nodes,
            node_id=node_id,
            host=host,
            gpus=allocated_gpus.of_step(environ),
            cpus=number(environ, "VERLJOB_CPUS", given or len(os.sched_getaffinity(0))),
            restart_count=number(environ, "SLURM_RESTART_COUNT", 0),
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


def _hosts(environ: Mapping[str, str]) -> tuple[str, ...]:
    nodelist = environ.get("SLURM_JOB_NODELIST", "")
    hosts = tuple(hostlist.expand(nodelist)) if nodelist else ()
    told = tuple(filter(None, environ.get("VERLJOB_NODELIST_HOSTS", "").split(",")))
    if hosts and told and hosts != told:
        raise _contradiction(
            f"SLURM_JOB_NODELIST {nodelist!r} reads as {','.join(hosts)}, but scontrol says {','.join(told)}"
        )
    return hosts or told


def _contradiction(what: str) -> BadSettings:
    return BadSettings(
        f"Slurm's variables contradict each other: {what}.",
        fix="Start the nodes with slurm/launch.sh, which runs one task on each node of the job.",
    )
