"""GIDs of RoCE ports: the index with RoCE v2 and a routable address."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from verl_node.network.hcas import Port, text

_VERSION_2 = "RoCE v2"
_ETHERNET = "Ethernet"


@dataclass(frozen=True)
class Gid:
    """One entry of a port's table; ``rank`` is lower where it is better."""

    index: int
    address: ipaddress.IPv6Address
    version_2: bool

    @property
    def routed(self) -> bool:
        """Whether it is an address of the interface: a link-local one is there also without any."""
        mapped = self.address.ipv4_mapped
        return not (mapped.is_link_local if mapped else self.address.is_link_local)

    @property
    def rank(self) -> int:
        """RoCE v2 before v1, which no router passes; an IPv4 address before IPv6, link-local last."""
        return 4 * (not self.version_2) + 2 * (not self.routed) + (self.address.ipv4_mapped is None)


def routable(port: Port) -> list[Gid]:
    """Return the used entries of a port that belong to an interface of this network namespace."""
    found = []
    for name in sorted((entry.name for entry in (port.folder / "gids").glob("*")), key=int):
        address = text(port.folder / "gids" / name)
        if not address.strip(":0"):
            continue  # unused, as most of some 256 are
        if text(port.folder / "gid_attrs" / "ndevs" / name) in port.interfaces:
            version_2 = text(port.folder / "gid_attrs" / "types" / name) == _VERSION_2
            found.append(Gid(int(name), ipaddress.IPv6Address(address), version_2))
    return found


def common(ports: Sequence[Port]) -> tuple[str, str]:
    """Return the one index that is best on every port, and why; no index where there is none.

    NCCL takes one number for all ports (NVIDIA/nccl#890); since 2.21 it looks for each port's by itself, but only for
    IPv4, where it is not told.
    """
    if not ports or ports[0].link != _ETHERNET:
        return "", "only RoCE has GIDs to choose from"
    best = [_best(routable(port)) for port in ports]
    if not all(best):
        return "", "a port has no GID that belongs to an interface here"
    shared = set.intersection(*({gid.index for gid in each} for each in best))
    if not shared:
        each = ", ".join(f"{port.name} {gids[0].index}" for port, gids in zip(ports, best))
        return "", f"it differs between ports ({each}); NCCL finds each by itself since 2.21"
    gid = next(gid for gid in best[0] if gid.index == min(shared))
    version = "RoCE v2" if gid.version_2 else "RoCE v1, there is no v2"
    return str(gid.index), f"{version} by {gid.address.ipv4_mapped or gid.address} on {ports[0].name}"


def _best(gids: Sequence[Gid]) -> list[Gid]:
    least = min((gid.rank for gid in gids), default=None)
    return [gid for gid in gids if gid.rank == least]
