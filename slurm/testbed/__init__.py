"""The rehearsal cluster: real Slurm, real Docker engines and a registry, in containers of one machine."""

from __future__ import annotations

from slurm.testbed.cluster import MAX_NODES, Cluster, handed_on
from slurm.testbed.jobs import Job

__all__ = ["MAX_NODES", "Cluster", "Job", "handed_on"]
