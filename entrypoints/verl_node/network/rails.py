"""Chooses the ports for GPU traffic: active ones, InfiniBand first, without storage networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from verl_node.network import gids
from verl_node.network.hcas import Hcas, Port

INFINIBAND = "InfiniBand"
ETHERNET = "Ethernet"
_SWITCHED = 3  # of a PCI path: the host bridge, the root port, and the switch's upstream port


@dataclass(frozen=True)
class Rails:
    """The ports that were chosen, why these, and why not the others."""

    ports: tuple[Port, ...]
    why: str
    left_out: tuple[tuple[str, str], ...] = ()

    def nccl(self) -> str:
        """Return them as NCCL_IB_HCA takes them: exact names, since mlx5_1 alone would also mean mlx5_10."""
        names = [port.name for port in sorted(self.ports, key=_order)]
        return "=" + ",".join(names) if names else ""


def choose(hcas: Hcas) -> Rails:
    """Sift the ports; a sieve that would leave none is not used."""
    ports = [port for port in hcas.ports if port.driver != "efa"]  # plugins.py tells of these
    left: list[tuple[str, str]] = []
    ports = _drop(ports, left, lambda port: port.adapter, "no adapter of InfiniBand or RoCE")
    ports = _drop(ports, left, lambda port: port.active, "")
    ports = _drop(ports, left, lambda port: port.link in (INFINIBAND, ETHERNET), "of no known link layer")
    if not ports:
        return Rails((), _nothing(hcas), tuple(left))
    if any(port.link == INFINIBAND for port in ports):
        ports = _drop(ports, left, lambda port: port.link == INFINIBAND, "Ethernet, and there is InfiniBand")
    else:
        ports = _sift(ports, left, _has_address, "no address on its interface")
    ports = _sift(ports, left, lambda port: beside_gpu(port, hcas), "shares no PCIe switch with a GPU, as others do")
    fastest = max(port.gbps for port in ports)
    ports = _sift(ports, left, lambda port: port.gbps == fastest, f"slower than the {fastest:g} Gb/s of others")
    kind = INFINIBAND if ports[0].link == INFINIBAND else "RoCE"
    if kind != INFINIBAND:
        ports = _sift(ports, left, lambda port: not port.bonded, "a bond, and others are not")
    count = f"{len(ports)} active {kind} port{'s' * (len(ports) > 1)}"
    return Rails(tuple(ports), f"{count} of {fastest:g} Gb/s", tuple(left))


def _drop(ports: Iterable[Port], left: list[tuple[str, str]], keeps: Callable[[Port], bool], why: str) -> list[Port]:
    kept = []
    for port in ports:
        if keeps(port):
            kept.append(port)
        else:
            left.append((port.name, why or f"its port is {port.state or 'silent'}, {port.physical or 'no link told'}"))
    return kept


def _sift(ports: list[Port], left: list[tuple[str, str]], keeps: Callable[[Port], bool], why: str) -> list[Port]:
    return _drop(ports, left, keeps, why) if any(map(keeps, ports)) else ports


def _has_address(port: Port) -> bool:
    return any(gid.routed for gid in gids.routable(port))


def beside_gpu(port: Port, hcas: Hcas) -> bool:
    """Whether a PCIe switch has both: GPU buffers go to such an adapter without the CPU in between."""
    return any(_shared(port.card, gpu) >= _SWITCHED for gpu in hcas.gpus)


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    count = 0
    for left, right in zip(one[:-1], other[:-1]):
        if left != right:
            break
        count += 1
    return count


def _nothing(hcas: Hcas) -> str:
    if hcas.efa or hcas.slingshot:
        return "the fabric here is reached by a plugin, not by InfiniBand verbs"
    return "no active port of InfiniBand or RoCE here" if hcas.ports else "no RDMA device here"


def _order(port: Port) -> tuple[str, int, int]:
    """mlx5_10 comes after mlx5_9."""
    stem = port.hca.rstrip("0123456789")
    return stem, int(port.hca[len(stem) :] or 0), port.number
