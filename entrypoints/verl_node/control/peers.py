"""The connected workers and the last message of each."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from verl_node.checks.cluster import Report
from verl_node.control.channel import Message
from verl_node.control.messages import built, count, text
from verl_node.control.session import Session
from verl_node.errors import ClusterNotFormed
from verl_node.settings.identity import Identity
from verl_node.supervision.waiting import Deadline


class Peer:
    """A worker that said hello."""

    def __init__(self, identity: Identity, session: Session, key: str) -> None:
        self.identity = identity
        self.session = session
        self.key = key
        """What a worker names to go on with its session over another connection."""
        self.attempts = 0
        self.last = "hello"
        self.replies: set[str] = set()
        self.report: Report | None = None


class NotAdmitted(Exception):
    """A hello of a node that is not expected, or that is here already."""


class WorkerTable:
    """The workers by node number; by hand nobody knows their names before they come."""

    def __init__(self, hosts: Sequence[str], nodes: int) -> None:
        self._hosts = hosts or ["the head", *(f"node {number}" for number in range(1, nodes))]
        self._by_hand = not hosts
        self._here: dict[int, Peer] = {}

    def __len__(self) -> int:
        return len(self._here)

    def peers(self) -> list[Peer]:
        """Return who is here, by node number."""
        return [peer for _, peer in sorted(self._here.items())]

    def absent(self) -> list[int]:
        """Return the numbers of the workers that are not here."""
        return [number for number in range(1, len(self._hosts)) if number not in self._here]

    def admit(self, hello: Message, session: Session) -> Peer:
        """Enter a worker by its hello; by hand it gets the next free number. Raises NotAdmitted, Unreadable."""
        fields: dict[str, Any] = {key: value for key, value in hello.items() if key != "kind"}
        if self._by_hand:
            fields["node_id"] = min(self.absent(), default=len(self._hosts))
        peer = Peer(built(Identity, fields), session, secrets.token_hex(16))
        number = peer.identity.node_id
        if number in self._here:
            raise NotAdmitted(f"node {number} is already here from {self._here[number].session.remote_address}")
        if not 0 < number < len(self._hosts):
            raise NotAdmitted(f"the cluster has {len(self._hosts)} nodes and this would be number {number}, from 0")
        self._here[number] = peer
        return peer

    def returning(self, resume: Message) -> Peer:
        """Return the worker that goes on with its session. Raises NotAdmitted, Unreadable."""
        number, attempt = count(resume, "node_id"), count(resume, "attempt")
        peer = self._here.get(number)
        if peer is None or not hmac.compare_digest(text(resume, "session").encode(), peer.key.encode()):
            raise NotAdmitted(f"node {number} has no such session")
        if attempt <= peer.attempts:
            raise NotAdmitted(f"node {number} made attempt {peer.attempts} to return before attempt {attempt}")
        peer.attempts = attempt
        return peer

    def strike(self, peer: Peer) -> None:
        """Take a worker out that has ended or is lost."""
        del self._here[peer.identity.node_id]

    def without(self, reply: str) -> list[str]:
        """Return the hosts of the workers that have not sent this reply."""
        return [peer.identity.host for peer in self.peers() if reply not in peer.replies]

    def reached_address(self) -> str:
        """Return the address at which the first worker reached the head; empty without workers."""
        return self.peers()[0].session.local_address if self._here else ""

    def missing(self, nodes: Mapping[int, str], deadline: Deadline) -> ClusterNotFormed:
        """Return the error that names these nodes, each with what is known and what was last heard of it."""
        told = "; ".join(
            f"{self._hosts[number]}: {known}" + (f" ({self._here[number].last})" if number in self._here else "")
            for number, known in nodes.items()
        )
        return ClusterNotFormed(
            f"{len(nodes)} of {len(self._hosts)} nodes were not there after {deadline.timeout_s:.0f} s: {told}.",
            fix="Read those nodes' node.log and `sinfo -R`; requeue with --exclude, or raise VERLJOB_JOIN_TIMEOUT_S.",
            host=self._hosts[min(nodes)],
        )
