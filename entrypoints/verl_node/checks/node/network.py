"""Addresses and names by which the nodes find each other."""

from __future__ import annotations

import errno
import socket
import time
from ipaddress import ip_address
from pathlib import Path

from verl_node.checks.check import check
from verl_node.checks.result import OK, Result
from verl_node.network import address
from verl_node.settings.settings import Settings

NET = Path("/sys/class/net")
_PROBE_S = 2.0
# Errors from a packet filter that rejects (iptables REJECT), or from a host without a route.
_FILTERED = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EACCES, errno.EPERM)


@check("ray-gcs", threshold=2.0)
def head_name_resolves(settings: Settings, gpus: int, longest_s: float) -> Result:
    """The head's name resolves to an address of another node, and the name service answers quickly."""
    head = settings.head_address or settings.head_node
    if settings.allocation.nodes == 1 or not head or _is_address(head):
        return OK
    began = time.monotonic()
    try:
        found = str(socket.getaddrinfo(head, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        return Result(
            "fail",
            f"The head's name {head} does not resolve on this node: {error.strerror}.",
            "Add it to DNS or /etc/hosts, or set VERLJOB_HEAD_ADDRESS to the head's address.",
            "an address",
        )
    took_s = time.monotonic() - began
    if ip_address(found.partition("%")[0]).is_loopback:
        return Result(
            "fail",
            f"The head's name {head} resolves to {found} on {settings.allocation.host}, which is this node itself.",
            "Remove that line from /etc/hosts, or set VERLJOB_HEAD_ADDRESS to the head's address.",
            "an address that every node can reach",
        )
    if took_s > longest_s:
        return Result(
            "warn",
            f"The name service took {took_s:.1f} s for {head}.",
            "Check /etc/resolv.conf: the first name server may be unreachable.",
            f"at most {longest_s:g} s",
        )
    return OK


@check("ray-gcs")
def own_address_is_reachable(settings: Settings, gpus: int) -> Result:
    """This node's own address is neither loopback nor a container bridge's."""
    if settings.allocation.nodes == 1:
        return OK
    own = settings.own_address()
    interface = address.interface_of(own, address.interface_by_address())
    if (NET / interface / "bridge").is_dir() and interface:
        what = f"of the bridge {interface}"
    elif own == "127.0.0.1" and not settings.given_address:
        what = "loopback: this node has no route to another node of the job or to the outside"
    else:
        return OK
    return Result(
        "fail",
        f"This node would use {own}, {what}.",
        "Set VERLJOB_NODE_ADDRESS (and VERLJOB_HEAD_ADDRESS on the head) to the address on the cluster's network.",
        "an address that the other nodes can reach",
    )


@check("ray-gcs")
def head_port_is_open(settings: Settings, gpus: int) -> Result:
    """No firewall blocks the head's GCS port."""
    head = settings.head_address or settings.head_node
    if not (settings.joins and head):
        return OK
    port = settings.head_ports.gcs
    if not _filtered(head, port) or _filtered(head, settings.head_ports.control):
        return OK  # joining reports a head that cannot be reached at all
    return Result(
        "fail",
        f"A firewall drops packets from this node to {address.join(head, port)}, the port of Ray's GCS.",
        "Open VERLJOB_PORT_RANGE (20000-32767) between the nodes, or set it to an open range.",
        "an answer, or a refusal",
    )


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _filtered(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_PROBE_S):
            return False
    except (socket.timeout, TimeoutError):
        return True
    except OSError as error:
        return error.errno in _FILTERED
