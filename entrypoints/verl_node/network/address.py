"""Network addresses: this node's own by route, and parsing."""

from __future__ import annotations

import pwd
import socket
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path

from verl_node.errors import BadSettings

_ANYWHERE = ("192.0.2.1", "2001:db8::1")  # documentation ranges: never a neighbour
_LOOPBACK = "127.0.0.1"
_LISTENS = "0A"  # include/net/tcp_states.h


def own(head: str = "", hosts: Iterable[str] = ()) -> str:
    """Return the address by which others reach this node, which is the one that its routes leave from.

    The first of `hostname -I` may be a container bridge and the name may resolve to 127.0.1.1, so neither is asked:
    ``head`` (a name or address, may be empty) counts when it is an address of ours and not loopback, or where a route
    leads to it. Compute nodes often have no other route out; then the first of ``hosts`` to which one leads counts.
    A node without any route is alone: 127.0.0.1.
    """
    of_head = [found for found in _resolve(head) if not _loopback(found)] if head else []
    ours = (found for found in of_head if _is_ours(found))
    by_route = (_leaving(target) for target in (*of_head, *_ANYWHERE))
    others = (_leaving(target) for host in hosts if host != head for target in _resolve(host))
    return next((found for found in chain(ours, by_route, others) if found), _LOOPBACK)


def leads_here(name: str) -> str:
    """Return the address when a name resolves to one of this node's own, else empty; a bare address is no name."""
    found = _resolve(name)[:1]
    return found[0] if found and found[0] != name and _is_ours(found[0]) else ""


def numeric(host: str) -> str:
    """Return the address that a name resolves to, as Ray wants it. Raises BadSettings."""
    found = _resolve(host)
    if not found:
        raise BadSettings(
            f"The name {host!r} does not resolve here.", fix="Give an address, or a name that every node knows."
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
    """Tell whether something accepts connections there now."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def listener(port: int, proc: Path = Path("/proc")) -> str:
    """Return a sentence, after a blank, that names the account which listens on a port of this machine; else empty."""
    for table in ("net/tcp", "net/tcp6"):
        with suppress(OSError):
            for row in (proc / table).read_text().splitlines()[1:]:
                _, local, _, state, _, _, _, uid, *_ = row.split()
                if state == _LISTENS and int(local.rpartition(":")[2], 16) == port:
                    return f" A process of the account {_account(int(uid))} listens there."
    return ""


def _account(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:  # a container knows few
        return f"with the uid {uid}"


def _resolve(name: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []


def _loopback(candidate: str) -> bool:
    return candidate.startswith("127.") or candidate == "::1"


def _leaving(target: str) -> str:
    """Return the address from which the route to an address leaves; empty without a route, or where it stays here."""
    with socket.socket(_family(target), socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, 9))  # a datagram socket sends nothing on connect
        except OSError:
            return ""
        left = str(probe.getsockname()[0])
    return "" if _loopback(left) else left


def _family(candidate: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in candidate else socket.AF_INET


def _is_ours(candidate: str) -> bool:
    with socket.socket(_family(candidate), socket.SOCK_STREAM) as probe:
        try:
            probe.bind((candidate, 0))
        except OSError:
            return False
    return True
