"""Settings of NCCL, RCCL and Gloo, compared with the network of this node."""

from __future__ import annotations

from verl_node.checks.check import check
from verl_node.checks.node import rdma
from verl_node.checks.result import IDLE, OK, Result
from verl_node.network import address, rails
from verl_node.network.hcas import Port, gids
from verl_node.settings.settings import Settings

_FIX = "Unset it: every node then detects its own value (docs/fabric.md)."


@check("nccl")
def hcas_that_are_named_exist(settings: Settings, gpus: int) -> Result:
    """Every device in NCCL_IB_HCA exists and is active."""
    named = settings.environ.get("NCCL_IB_HCA", "")
    if not named or named.startswith("^"):
        return OK
    ports = rdma.read_hcas().ports
    exact = named.startswith("=")
    missing, down = [], []
    for name in filter(None, named.lstrip("=").split(",")):
        matching = [port for port in ports if _matches(port, name, exact=exact)]
        if not matching:
            missing.append(name)
        elif not any(port.active for port in matching):
            down.append(name)
    if not missing and not down:
        return OK
    problems = [f"{', '.join(missing)} does not exist"] * bool(missing)
    problems += [f"{', '.join(down)} is not active"] * bool(down)
    return Result(
        "fail",
        f"NCCL_IB_HCA={named}: {' and '.join(problems)}; existing: {', '.join(port.name for port in ports) or 'none'}.",
        _FIX,
        rails.choose(rdma.read_hcas()).nccl() or "unset, since this node has no HCA",
    )


@check("nccl")
def gid_index_fits(settings: Settings, gpus: int) -> Result:
    """NCCL_IB_GID_INDEX is a routed RoCE v2 entry on every RoCE port that is used."""
    given = settings.environ.get("NCCL_IB_GID_INDEX", "")
    chosen = rails.choose(rdma.read_hcas())
    if not given.isdigit() or not chosen.ports or chosen.ports[0].link != rails.ETHERNET:
        return OK
    wrong = [problem for port in chosen.ports if (problem := _gid_problem(port, int(given)))]
    if not wrong:
        return OK
    best, why = rails.gid_index(chosen.ports)
    return Result("fail", f"NCCL_IB_GID_INDEX={given}: {'; '.join(wrong)}.", _FIX, f"{best}, {why}" if best else why)


@check("nccl")
def interfaces_that_are_named_exist(settings: Settings, gpus: int) -> Result:
    """NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME are interfaces with an address, not bridges."""
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        given = settings.environ.get(name, "")
        problem = _interface_problem(given, name, several_nodes=settings.allocation.nodes > 1) if given else ""
        if problem:
            existing = ", ".join(sorted(set(address.interface_by_address().values())))
            return Result("fail", f"{name}={given}: {problem}.", _FIX, f"one of {existing}")
    return OK


@check("nccl", severity="warn")
def amd_settings_are_made(settings: Settings, gpus: int) -> Result:
    """On AMD: RCCL's MSCCL is off and scratch memory is kept, as verl's guide for MI300X requires."""
    if settings.platform != "rocm":
        return IDLE
    required = {"RCCL_MSCCL_ENABLE": "0", "HSA_NO_SCRATCH_RECLAIM": "1"}
    given = {name: settings.environ.get(name, "") for name in required}
    other = {name: value for name, value in given.items() if value != required[name]}
    if not other:
        return OK
    return Result(
        "warn",
        ", ".join(f"{name}={value or '(unset)'}" for name, value in other.items()) + ".",
        f"export {' '.join(f'{name}={required[name]}' for name in other)}",
        ", ".join(f"{name}={required[name]}" for name in other),
    )


def _matches(port: Port, entry: str, *, exact: bool) -> bool:
    name, _, number = entry.partition(":")
    same = port.hca == name if exact else port.hca.startswith(name)
    return same and number in ("", str(port.number))


def _gid_problem(port: Port, index: int) -> str:
    gid = next((gid for gid in gids(port) if gid.index == index), None)
    if gid is None:
        return f"{port.name} has no such entry for an interface of this network namespace"
    if not gid.version_2:
        return f"that is RoCE v1 on {port.name}"
    return "" if gid.routed else f"that is link-local, {gid.address}, on {port.name}"


def _interface_problem(given: str, variable: str, *, several_nodes: bool) -> str:
    """Gloo accepts names and no pattern (torch/csrc/distributed/c10d), NCCL prefixes, ``=`` and ``^``."""
    if variable.startswith("GLOO") and given.startswith(("^", "=")):
        return "Gloo needs the exact name of an interface, not a pattern"
    if given.startswith("^"):
        return ""
    existing = set(address.interface_by_address().values())
    exact = given.startswith("=") or variable.startswith("GLOO")
    for entry in given.lstrip("=").split(","):
        matching = {name for name in existing if name == entry or (not exact and name.startswith(entry))}
        net = rdma.ROOT / "sys/class/net"
        if not matching:
            return f"{entry} has no address" if (net / entry).exists() else f"there is no interface {entry}"
        if several_nodes and all((net / name / "bridge").is_dir() or name == "lo" for name in matching):
            return f"{entry} leads to no other node"
    return ""
