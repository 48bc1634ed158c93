"""NCCL and RCCL plugins for EFA and Slingshot, without which they silently use TCP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from verl_node.network.hcas import Hcas

# Where the installers of AWS and HPE, and images made after them, put it; NCCL itself looks where the linker does.
_FOLDERS = (
    "opt/amazon/ofi-nccl/lib",
    "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "opt/amazon/ofi-nccl/lib64",
    "opt/aws-ofi-nccl/lib",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/local/lib",
)
_LIBRARIES = ("libnccl-net.so", "libnccl-net-ofi.so", "librccl-net.so", "librccl-net-ofi.so")


def notes(hcas: Hcas, root: Path, libraries: str) -> Iterator[str]:
    """Say which of the two fabrics is here, and where its plugin lies or that it is missing."""
    for name, devices in (("EFA", hcas.efa), ("Slingshot", hcas.slingshot)):
        if devices:
            plugin = find(root, libraries)
            there = f"{name}: {', '.join(devices)}; "
            yield there + (f"plugin {plugin}" if plugin else "no plugin (aws-ofi-nccl), so NCCL would use TCP")


def find(root: Path, libraries: str) -> str:
    """Return the first plugin on LD_LIBRARY_PATH and in the installers' folders, empty where there is none."""
    for folder in [*filter(None, libraries.split(os.pathsep)), *_FOLDERS]:
        for library in _LIBRARIES:
            if (root / folder.lstrip("/") / library).exists():
                return str(Path("/", folder.lstrip("/"), library))
    return ""
