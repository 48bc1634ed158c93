"""The rehearsal cluster: real Slurm, real Docker engines and a registry, in containers on one machine."""

from __future__ import annotations

from slurm.testbed.cluster import MAX_NODES, Cluster, Job, exported_settings
from slurm.testbed.compose import SOURCES, debian

__all__ = ["MAX_NODES", "SOURCES", "Cluster", "Job", "debian", "exported_settings"]
