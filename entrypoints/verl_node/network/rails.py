"""Chooses the ports for GPU traffic (active ones, InfiniBand first, no storage networks) and their GID index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from verl_node.network.hcas import Gid, Hcas, Port, gids

INFINIBAND = "InfiniBand"
ETHERNET = "Ethernet"
LeftOut = list[tuple[str, str]]
_SWITCHED = 3  # of a PCI path: the host bridge, the root port, and the switch's upstream port


@dataclass(frozen=True)
class Rails:
    """The chosen ports with the reason, and the other ports with a reason each."""

    ports: tuple[Port, ...]
    why: str
    left_out: tuple[tuple[str, str], ...] = ()

    def nccl(self) -> str:
        """Return the value for NCCL_IB_HCA: exact names, since the pattern mlx5_1 also matches mlx5_10."""
        names = [port.name for port in sorted(self.ports, key=_order)]
        return "=" + ",".join(names) if names else ""


def choose(hcas: Hcas) -> Rails:
    """Filter the ports; a preference that would leave none is skipped."""
    ports = [port for port in hcas.ports if port.driver != "efa"]  # fabric.py reports these
    left_out: LeftOut = []
    ports = _require(ports, left_out, lambda port: port.adapter, "not an InfiniBand or RoCE adapter")
    ports = _require(ports, left_out, lambda port: port.active, "")
    ports = _require(ports, left_out, lambda port: port.link in (INFINIBAND, ETHERNET), "unknown link layer")
    if not ports:
        return Rails((), _why_none(hcas), tuple(left_out))
    if any(port.link == INFINIBAND for port in ports):
        ports = _require(ports, left_out, lambda port: port.link == INFINIBAND, "Ethernet, and others are InfiniBand")
    else:
        ports = _prefer(ports, left_out, _has_address, "no address on its interface")
    why = "shares no PCIe switch with a GPU, as others do"
    ports = _prefer(ports, left_out, lambda port: beside_gpu(port, hcas), why)
    fastest = max(port.gbps for port in ports)
    ports = _prefer(ports, left_out, lambda port: port.gbps == fastest, f"slower than the {fastest:g} Gb/s of others")
    kind = INFINIBAND if ports[0].link == INFINIBAND else "RoCE"
    if kind != INFINIBAND:
        ports = _prefer(ports, left_out, lambda port: not port.bonded, "a bond, and others are not")
    count = f"{len(ports)} active {kind} port{'s' * (len(ports) > 1)}"
    return Rails(tuple(ports), f"{count} of {fastest:g} Gb/s", tuple(left_out))


def _require(ports: Iterable[Port], left_out: LeftOut, accepts: Callable[[Port], bool], why: str) -> list[Port]:
    accepted = []
    for port in ports:
        if accepts(port):
            accepted.append(port)
        else:
            state = f"its port is {port.state or 'in an unknown state'}, {port.physical or 'link unknown'}"
            left_out.append((port.name, why or state))
    return accepted


def _prefer(ports: list[Port], left_out: LeftOut, accepts: Callable[[Port], bool], why: str) -> list[Port]:
    return _require(ports, left_out, accepts, why) if any(map(accepts, ports)) else ports


def _has_address(port: Port) -> bool:
    return any(gid.routed for gid in gids(port))


def beside_gpu(port: Port, hcas: Hcas) -> bool:
    """Whether a GPU is on the same PCIe switch, so that copies bypass the CPU."""
    return any(_shared(port.card, gpu) >= _SWITCHED for gpu in hcas.gpus)


def _shared(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    count = 0
    for left, right in zip(first[:-1], second[:-1]):
        if left != right:
            break
        count += 1
    return count


def _why_none(hcas: Hcas) -> str:
    if hcas.efa or hcas.slingshot:
        return "the fabric needs a plugin, not InfiniBand verbs"
    return "no active port of InfiniBand or RoCE" if hcas.ports else "no RDMA device"


def _order(port: Port) -> tuple[str, int, int]:
    """Sort mlx5_10 after mlx5_9."""
    stem = port.hca.rstrip("0123456789")
    return stem, int(port.hca[len(stem) :] or 0), port.number


def gid_index(ports: Sequence[Port]) -> tuple[str, str]:
    """Return the GID index that is best on every port, and the reason; an empty index if the best ones differ.

    NCCL accepts one number for all ports (NVIDIA/nccl#890); without one, NCCL 2.21 and later detects the index of each
    port, but only for IPv4.
    """
    if not ports or ports[0].link != ETHERNET:
        return "", "only RoCE has GIDs to choose from"
    best = [_best(gids(port)) for port in ports]
    if not all(best):
        return "", "a port has no GID that belongs to an interface of this node"
    shared = set.intersection(*({gid.index for gid in of_port} for of_port in best))
    if not shared:
        indexes = ", ".join(f"{port.name} {of_port[0].index}" for port, of_port in zip(ports, best))
        return "", f"it differs between ports ({indexes}); NCCL 2.21 and later detects each"
    gid = next(gid for gid in best[0] if gid.index == min(shared))
    version = "RoCE v2" if gid.version_2 else "RoCE v1, no v2 exists"
    return str(gid.index), f"{version} by {gid.address.ipv4_mapped or gid.address} on {ports[0].name}"


def _best(found: Sequence[Gid]) -> list[Gid]:
    lowest = min((gid.rank for gid in found), default=None)
    return [gid for gid in found if gid.rank == lowest]
