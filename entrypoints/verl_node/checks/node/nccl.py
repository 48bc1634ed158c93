"""Settings of NCCL, RCCL and Gloo, compared with the network of this node."""

from __future__ import annotations

from ipaddress import IPv6Address

from verl_node.checks.check import check
from verl_node.checks.node import rdma
from verl_node.checks.result import IDLE, OK, Result
from verl_node.network import gids, interfaces, rails
from verl_node.network.hcas import Port
from verl_node.settings.settings import Settings

_FOUND_BY_ITSELF = "Unset it: every node finds what fits it (docs/fabric.md)."


@check("nccl")
def hcas_that_are_named_exist(settings: Settings, gpus: int) -> Result:
    """Every device that NCCL_IB_HCA names is here and active."""
    named = settings.environ.get("NCCL_IB_HCA", "")
    if not named or named.startswith("^"):
        return OK
    ports = rdma.here().ports
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
        rails.choose(rdma.here()).nccl() or "no HCA here",
    )


@check("nccl")
def gid_index_fits(settings: Settings, gpus: int) -> Result:
    """NCCL_IB_GID_INDEX names a routed RoCE v2 entry on every RoCE port that is used."""
    given = settings.environ.get("NCCL_IB_GID_INDEX", "")
    chosen = rails.choose(rdma.here())
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
            held = ", ".join(sorted(set(interfaces.addresses().values())))
            return Result("fail", f"{name}={given}: {told}.", _FOUND_BY_ITSELF, f"one of {held}")
    return OK


@check("nccl", severity="warn")
def amd_settings_are_made(settings: Settings, gpus: int) -> Result:
    """On AMD: RCCL's MSCCL is off and the runtime keeps its scratch memory, as verl's guide for MI300X wants."""
    if settings.platform != "rocm":
        return IDLE
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


def _fits(port: Port, word: str, *, exact: bool) -> bool:
    name, _, number = word.partition(":")
    same = port.hca == name if exact else port.hca.startswith(name)
    return same and number in ("", str(port.number))


def _wrong_gid(port: Port, index: int) -> str:
    gid = next((gid for gid in gids.routable(port) if gid.index == index), None)
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
    held = set(interfaces.addresses().values())
    exact = given.startswith("=") or variable.startswith("GLOO")
    for word in given.lstrip("=").split(","):
        fitting = {name for name in held if name == word or (not exact and name.startswith(word))}
        if not fitting:
            there = (rdma.ROOT / "sys/class/net" / word).exists()
            return f"{word} has no address" if there else f"there is no interface {word}"
        if several and all(
            (rdma.ROOT / "sys/class/net" / name / "bridge").is_dir() or name == "lo" for name in fitting
        ):
            return f"{word} leads to no other node"
    return ""
