"""Network interfaces and their addresses."""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

_SIOCGIFCONF = 0x8912  # linux/sockios.h
_IFREQ = struct.Struct("16s16s8x")  # linux/if.h on 64-bit machines: name, sockaddr, rest of the union
_MOST = 512  # addresses; a node has tens

IF_INET6 = Path("/proc/net/if_inet6")


def addresses() -> dict[str, str]:
    """Return the interface of every address of this network namespace, also where an interface has several."""
    return {**dict(_of_version_4()), **dict(_of_version_6(IF_INET6))}


def holder(address: str, held: Mapping[str, str]) -> str:
    """Return the interface that holds an address, empty where none does; IPv6 is compared as a number."""
    try:
        wanted = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    return next((name for text, name in held.items() if ipaddress.ip_address(text) == wanted), "")


def _of_version_4() -> Iterator[tuple[str, str]]:
    """Asked of the kernel: /proc tells of routes, and two rails may share a network."""
    room = array.array("B", bytes(_IFREQ.size * _MOST))
    start, size = room.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe, _SIOCGIFCONF, struct.pack("iL", size, start))
    (used,) = struct.unpack_from("i", answer)
    for name, at in _IFREQ.iter_unpack(room.tobytes()[:used]):
        label = name.partition(b"\0")[0].decode()
        yield socket.inet_ntoa(at[4:8]), label.partition(":")[0]  # eth0:1 is a second address of eth0


def _of_version_6(file: Path) -> Iterator[tuple[str, str]]:
    """A line is address, index, prefix length, scope, flags, name; a kernel without IPv6 has no such file."""
    if file.exists():
        for line in file.read_text().splitlines():
            address, *_, name = line.split()
            yield str(ipaddress.IPv6Address(int(address, 16))), name
