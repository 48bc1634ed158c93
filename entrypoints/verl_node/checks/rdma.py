"""What was set for NCCL and Gloo, held against the network that is here."""

from __future__ import annotations

import os
from functools import lru_cache
from ipaddress import IPv6Address
from pathlib import Path

from verl_node import platforms
from verl_node.checks.answer import OK, Result
from verl_node.checks.check import check
from verl_node.fabric import gids, hcas, links, plugins, rails
from verl_node.fabric.hcas import Hcas, Port
from verl_node.settings import Settings

ROOT = Path("/")
_OFF = (("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket"))
_FOUND_BY_ITSELF = "Unset it: every node finds what fits it (docs/fabric.md)."


@lru_cache(maxsize=1)
def _read(root: Path) -> Hcas:
    return hcas.read(root)


def here() -> Hcas:
    """Return the RDMA devices of this node, read once."""
    return _read(ROOT)


@check("nccl")
def ports_are_up(settings: Settings, gpus: int) -> Result:
    """Every RDMA port that shares a PCIe switch with a GPU is ACTIVE and LinkUp, as its neighbours are."""
    found = here()
    chosen = rails.choose(found)
    kinds = {port.link for port in chosen.ports}
    down = [
        port
        for port in found.ports
        if port.adapter and not port.active and port.link in kinds and rails.beside_gpu(port, found)
    ]
    if not down or not _matters(settings, gpus):
        return OK
    told = ", ".join(f"{port.name} {port.state}, {port.physical}" for port in down)
    return Result(
        "warn",
        f"{told}; {len(chosen.ports)} others are active.",
        "Look at the cable and the subnet manager (ibstat); exclude the node meanwhile.",
        "4: ACTIVE, 5: LinkUp",
    )


@check("nccl")
def hcas_that_are_named_exist(settings: Settings, gpus: int) -> Result:
    """Every device that NCCL_IB_HCA names is here and active."""
    named = settings.environ.get("NCCL_IB_HCA", "")
    if not named or named.startswith("^"):
        return OK
    ports = here().ports
    exact = named.startswith("=")
    missing, down = [], []
    for word in filter(None, named.lstrip("=").split(",")):
        fitting = [port for port in ports if _fits(port, word, exact=exact)]
        if not fitting:
            missing.append(word)
        elif not any(port.active for port in fitting):
            down.append(word)
    if not missing and not down:
        return OK
    told = [f"{', '.join(missing)} is not here"] * bool(missing) + [f"{', '.join(down)} is not active"] * bool(down)
    return Result(
        "fail",
        f"NCCL_IB_HCA={named}, and {' and '.join(told)}; here: {', '.join(port.name for port in ports) or 'none'}.",
        _FOUND_BY_ITSELF,
        rails.choose(here()).nccl() or "no HCA here",
    )


@check("nccl")
def gid_index_fits(settings: Settings, gpus: int) -> Result:
    """NCCL_IB_GID_INDEX names a routed RoCE v2 entry on every RoCE port that is used."""
    given = settings.environ.get("NCCL_IB_GID_INDEX", "")
    chosen = rails.choose(here())
    if not given.isdigit() or not chosen.ports or chosen.ports[0].link != rails.ETHERNET:
        return OK
    wrong = [told for port in chosen.ports if (told := _wrong_gid(port, int(given)))]
    if not wrong:
        return OK
    best, why = gids.common(chosen.ports)
    return Result(
        "fail", f"NCCL_IB_GID_INDEX={given}: {'; '.join(wrong)}.", _FOUND_BY_ITSELF, f"{best}, {why}" if best else why
    )


@check("nccl")
def interfaces_that_are_named_exist(settings: Settings, gpus: int) -> Result:
    """NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME name interfaces that are here, with an address, and no bridge."""
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        given = settings.environ.get(name, "")
        told = _wrong_interface(given, name, several=settings.allocation.nodes > 1) if given else ""
        if told:
            held = ", ".join(sorted(set(links.addresses().values())))
            return Result("fail", f"{name}={given}: {told}.", _FOUND_BY_ITSELF, f"one of {held}")
    return OK


@check("nccl")
def devices_are_in_the_container(settings: Settings, gpus: int) -> Result:
    """Each active RDMA port has its /dev/infiniband device here, else NCCL uses TCP without a word."""
    chosen = rails.choose(here()).ports
    if not chosen or not _matters(settings, gpus) or settings.environ.get("NCCL_IB_DISABLE", "0") not in ("", "0"):
        return OK
    names = {hcas.text(path / "ibdev"): path.name for path in (ROOT / "sys/class/infiniband_verbs").glob("uverbs*")}
    needed = dict.fromkeys(names.get(port.hca, f"(device of {port.hca})") for port in chosen)
    closed = [name for name in needed if not os.access(ROOT / "dev/infiniband" / name, os.R_OK | os.W_OK)]
    if not closed:
        return OK
    return Result(
        "fail",
        f"/dev/infiniband/{', '.join(closed)} cannot be opened here, and the ports of {len(needed)} HCAs are active.",
        "Pass /dev/infiniband into the container (--device /dev/infiniband), or set NCCL_IB_DISABLE=1 to want TCP.",
        "a device that this account may read and write",
    )


@check("nccl")
def nothing_falls_back_to_tcp(settings: Settings, gpus: int) -> Result:
    """EFA and Slingshot have their plugin, and no variable turns a fast network off."""
    found = here()
    if not _matters(settings, gpus):
        return OK
    environ = settings.environ
    if (found.efa or found.slingshot) and not plugins.find(ROOT, environ.get("LD_LIBRARY_PATH", "")):
        devices = ", ".join([*found.efa, *found.slingshot])
        return Result(
            "fail",
            f"{devices} are here, and no plugin for them: NCCL would use TCP and say so at INFO only.",
            "Put aws-ofi-nccl into the image or mount it, and its folder on LD_LIBRARY_PATH (VERLJOB_ENV).",
            "libnccl-net.so of aws-ofi-nccl",
        )
    off = [f"{name}={value}" for name, value in _OFF if environ.get(name) == value]
    if off and rails.choose(found).ports:
        return Result("warn", f"{', '.join(off)} although there are active HCAs.", f"Unset {off[0].partition('=')[0]}.")
    return OK


@check("nccl", severity="warn")
def amd_settings_are_made(settings: Settings, gpus: int) -> Result:
    """On AMD: RCCL's MSCCL is off and the runtime keeps its scratch memory, as verl's guide for MI300X wants."""
    if settings.platform != "rocm":
        return OK
    wanted = {"RCCL_MSCCL_ENABLE": "0", "HSA_NO_SCRATCH_RECLAIM": "1"}
    other = {name: settings.environ.get(name, "") for name in wanted if settings.environ.get(name, "") != wanted[name]}
    if not other:
        return OK
    return Result(
        "warn",
        ", ".join(f"{name}={value or '(unset)'}" for name, value in other.items()) + ".",
        f"export {' '.join(f'{name}={wanted[name]}' for name in other)}",
        ", ".join(f"{name}={wanted[name]}" for name in other),
    )


def _matters(settings: Settings, gpus: int) -> bool:
    """Whether GPUs of several nodes will talk to each other."""
    return settings.allocation.nodes > 1 and gpus > 0 and bool(platforms.of(settings.platform).devices)


def _fits(port: Port, word: str, *, exact: bool) -> bool:
    name, _, number = word.partition(":")
    same = port.hca == name if exact else port.hca.startswith(name)
    return same and number in ("", str(port.number))


def _wrong_gid(port: Port, index: int) -> str:
    gid = next((gid for gid in gids.of(port) if gid.index == index), None)
    if gid is None:
        return f"{port.name} has no such entry of an interface here"
    if not gid.version_2:
        return f"that is RoCE v1 on {port.name}"
    return "" if gid.routed else f"that is link-local, {IPv6Address(gid.address)}, on {port.name}"


def _wrong_interface(given: str, variable: str, *, several: bool) -> str:
    """Gloo takes names and no pattern (torch/csrc/distributed/c10d), NCCL prefixes, ``=`` and ``^``."""
    if variable.startswith("GLOO") and given.startswith(("^", "=")):
        return "Gloo takes the exact name of an interface and no pattern"
    if given.startswith("^"):
        return ""
    held = set(links.addresses().values())
    exact = given.startswith("=") or variable.startswith("GLOO")
    for word in given.lstrip("=").split(","):
        fitting = {name for name in held if name == word or (not exact and name.startswith(word))}
        if not fitting:
            there = (ROOT / "sys/class/net" / word).exists()
            return f"{word} has no address" if there else f"there is no interface {word}"
        if several and all((ROOT / "sys/class/net" / name / "bridge").is_dir() or name == "lo" for name in fitting):
            return f"{word} leads to no other node"
    return ""
