"""Network addresses: of this node by route, and as text."""

from __future__ import annotations

import socket

from verl_node.errors import BadSettings

_ANYWHERE = (("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6))  # documentation ranges: never a neighbour


def own(head_node: str = "") -> str:
    """Return the address by which others reach this node, which is the one that its routes leave from.

    The first of `hostname -I` may be a container bridge and the name may resolve to 127.0.1.1, so neither is asked:
    ``head_node`` (a name of this node, may be empty) counts only when it resolves to an address that is not loopback
    and is ours. A node without any route is alone: 127.0.0.1.
    """
    for candidate in _resolve(head_node) if head_node else []:
        if not candidate.startswith("127.") and candidate != "::1" and _is_ours(candidate):
            return candidate
    for target, family in _ANYWHERE:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((target, 9))  # a datagram socket sends nothing on connect
            except OSError:
                continue
            return str(probe.getsockname()[0])
    return "127.0.0.1"


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


def _resolve(name: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []


def _is_ours(candidate: str) -> bool:
    family = socket.AF_INET6 if ":" in candidate else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((candidate, 0))
        except OSError:
            return False
    return True
