"""Network addresses: this node's own by route, those of its interfaces, and parsing."""

from __future__ import annotations

import array
import fcntl
import ipaddress
import pwd
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path

from verl_node.errors import BadSettings

_OUTSIDE = ("192.0.2.1", "2001:db8::1")  # documentation ranges: never a neighbour
_LOOPBACK = "127.0.0.1"
_LISTENING = "0A"  # include/net/tcp_states.h
_SIOCGIFCONF = 0x8912  # linux/sockios.h
_IFREQ = struct.Struct("16s16s8x")  # linux/if.h on 64-bit machines: name, sockaddr, rest of the union
_MAX_ADDRESSES = 512  # a node has tens
IF_INET6 = Path("/proc/net/if_inet6")


def own(head: str = "", hosts: Iterable[str] = ()) -> str:
    """Return the address by which other nodes reach this one: the source address of its routes.

    The first address of `hostname -I` may be a container bridge, and the host name may resolve to 127.0.1.1; neither is
    used. In this order: an address of ``head`` (a name or address, may be empty) that is this node's and not loopback,
    the source of the route to ``head``, of the default route (compute nodes often have none), of the route to the first
    of ``hosts`` that has one. A node without any route is alone: 127.0.0.1.
    """
    of_head = [found for found in _resolve(head) if not _loopback(found)] if head else []
    ours = (found for found in of_head if _is_ours(found))
    by_route = (_source(target) for target in (*of_head, *_OUTSIDE))
    others = (_source(target) for host in hosts if host != head for target in _resolve(host))
    return next((found for found in chain(ours, by_route, others) if found), _LOOPBACK)


def leads_here(name: str) -> str:
    """Return the address if a name resolves to this node itself, else an empty string."""
    found = _resolve(name)[:1]
    return found[0] if found and found[0] != name and _is_ours(found[0]) else ""


def numeric(host: str) -> str:
    """Return the address that a name resolves to, which Ray needs. Raises BadSettings."""
    found = _resolve(host)
    if not found:
        raise BadSettings(
            f"The name {host!r} does not resolve.", fix="Pass an address, or a name that every node resolves."
        )
    return found[0]


def join(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split(text: str) -> tuple[str, int]:
    """Read ``host:port`` or ``[address]:port``. Raises BadSettings."""
    host, _, port = text.rpartition(":")
    if not (host and port.isdigit() and 0 < int(port) < 1 << 16):
        raise BadSettings(f"{text!r} is not HOST:PORT.", fix="Copy the join line that `node --head` prints.")
    return host.strip("[]"), int(port)


def answers(host: str, port: int) -> bool:
    """Return whether a process accepts connections at this address now."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def listener(port: int, proc: Path = Path("/proc")) -> str:
    """Return a sentence, after a blank, with the account that listens on a port; empty for none."""
    for table in ("net/tcp", "net/tcp6"):
        with suppress(OSError):
            for row in (proc / table).read_text().splitlines()[1:]:
                _, local, _, state, _, _, _, uid, *_ = row.split()
                if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                    return f" A process of the account {_account(int(uid))} listens on it."
    return ""


def _account(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:  # a container has few accounts
        return f"with the uid {uid}"


def _resolve(name: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []


def _loopback(candidate: str) -> bool:
    return candidate.startswith("127.") or candidate == "::1"


def _source(target: str) -> str:
    """Return the source address of the route to another node; empty without one."""
    with socket.socket(_family(target), socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, 9))  # a datagram socket sends nothing on connect
        except OSError:
            return ""
        source = str(probe.getsockname()[0])
    return "" if _loopback(source) else source


def _family(candidate: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in candidate else socket.AF_INET


def _is_ours(candidate: str) -> bool:
    with socket.socket(_family(candidate), socket.SOCK_STREAM) as probe:
        try:
            probe.bind((candidate, 0))
        except OSError:
            return False
    return True


def interface_by_address() -> dict[str, str]:
    """Return the interface of every address of this network namespace."""
    return {**dict(_ipv4_addresses()), **dict(_ipv6_addresses(IF_INET6))}


def interface_of(address: str, interfaces: Mapping[str, str]) -> str:
    """Return the interface with an address, empty for none; IPv6 is compared as a number."""
    try:
        number = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    return next((name for text, name in interfaces.items() if ipaddress.ip_address(text) == number), "")


def _ipv4_addresses() -> Iterator[tuple[str, str]]:
    """Query the kernel by ioctl: /proc lists only routes, and two rails may share a network."""
    room = array.array("B", bytes(_IFREQ.size * _MAX_ADDRESSES))
    start, size = room.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe, _SIOCGIFCONF, struct.pack("iL", size, start))
    (used,) = struct.unpack_from("i", answer)
    for name, sockaddr in _IFREQ.iter_unpack(room.tobytes()[:used]):
        label = name.partition(b"\0")[0].decode()
        yield socket.inet_ntoa(sockaddr[4:8]), label.partition(":")[0]  # eth0:1 is a second address of eth0


def _ipv6_addresses(file: Path) -> Iterator[tuple[str, str]]:
    """A line is address, index, prefix length, scope, flags, name; no file without IPv6."""
    if file.exists():
        for line in file.read_text().splitlines():
            address, *_, name = line.split()
            yield str(ipaddress.IPv6Address(int(address, 16))), name
