"""RDMA devices: up, in the container, and used instead of TCP."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from verl_node.checks.check import check
from verl_node.checks.result import IDLE, OK, Result
from verl_node.gpu import platforms
from verl_node.network import fabric, hcas, rails
from verl_node.network.hcas import Hcas
from verl_node.settings.settings import Settings

ROOT = Path("/")
_OFF = (("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket"))


def read_hcas() -> Hcas:
    """Return the RDMA devices of this node, cached."""
    return _read(ROOT)


@lru_cache(maxsize=1)
def _read(root: Path) -> Hcas:
    return hcas.read(root)


@check("nccl")
def ports_are_up(settings: Settings, gpus: int) -> Result:
    """Every RDMA port that shares a PCIe switch with a GPU is ACTIVE and LinkUp."""
    found = read_hcas()
    chosen = rails.choose(found)
    kinds = {port.link for port in chosen.ports}
    down = [
        port
        for port in found.ports
        if port.adapter and not port.active and port.link in kinds and rails.beside_gpu(port, found)
    ]
    if not _matters(settings, gpus):
        return IDLE
    if not down:
        return OK
    states = ", ".join(f"{port.name} {port.state}, {port.physical}" for port in down)
    return Result(
        "warn",
        f"{states}; {len(chosen.ports)} others are active.",
        "Check the cable and the subnet manager (ibstat); exclude the node meanwhile.",
        "4: ACTIVE, 5: LinkUp",
    )


@check("nccl")
def devices_are_in_the_container(settings: Settings, gpus: int) -> Result:
    """Each active RDMA port has its /dev/infiniband device; otherwise NCCL silently uses TCP."""
    chosen = rails.choose(read_hcas()).ports
    if not _matters(settings, gpus):
        return IDLE
    if not chosen or settings.environ.get("NCCL_IB_DISABLE", "0") not in ("", "0"):
        return OK
    names = {hcas.text(path / "ibdev"): path.name for path in (ROOT / "sys/class/infiniband_verbs").glob("uverbs*")}
    needed = dict.fromkeys(names.get(port.hca, f"(device of {port.hca})") for port in chosen)
    closed = [name for name in needed if not os.access(ROOT / "dev/infiniband" / name, os.R_OK | os.W_OK)]
    if not closed:
        return OK
    return Result(
        "fail",
        f"/dev/infiniband/{', '.join(closed)} cannot be opened, and the ports of {len(needed)} HCAs are active.",
        "Pass /dev/infiniband into the container (--device /dev/infiniband), or set NCCL_IB_DISABLE=1 to use TCP.",
        "a device that this account may read and write",
    )


@check("nccl")
def nothing_falls_back_to_tcp(settings: Settings, gpus: int) -> Result:
    """EFA and Slingshot have their NCCL plugin, and no variable disables a fast network."""
    found = read_hcas()
    if not _matters(settings, gpus):
        return IDLE
    environ = settings.environ
    if (found.efa or found.slingshot) and not fabric.find_plugin(ROOT, environ.get("LD_LIBRARY_PATH", "")):
        devices = ", ".join([*found.efa, *found.slingshot])
        return Result(
            "fail",
            f"{devices} are present, but no plugin for them: NCCL would use TCP and log that only at INFO.",
            "Install or mount aws-ofi-nccl in the container, and add its folder to LD_LIBRARY_PATH (VERLJOB_ENV).",
            "aws-ofi-nccl's libnccl-net.so",
        )
    off = [f"{name}={value}" for name, value in _OFF if environ.get(name) == value]
    if off and rails.choose(found).ports:
        return Result(
            "warn", f"{', '.join(off)} although the node has active HCAs.", f"Unset {off[0].partition('=')[0]}."
        )
    return OK


def _matters(settings: Settings, gpus: int) -> bool:
    """Whether GPUs of several nodes will communicate."""
    return settings.allocation.nodes > 1 and gpus > 0 and bool(platforms.find(settings.platform).devices)
