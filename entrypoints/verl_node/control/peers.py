"""The connected workers and the last event of each."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

from verl_node.checks.cluster import Report
from verl_node.control.messages import Message, Resume
from verl_node.control.session import Session
from verl_node.errors import ClusterNotFormed
from verl_node.settings.identity import Identity
from verl_node.supervision.waiting import Deadline


class NotAdmitted(Exception):
    """A hello or resume of a node that is not expected, or that is already connected."""


class Peer:
    """A worker that said hello."""

    def __init__(self, identity: Identity, session: Session) -> None:
        self.identity = identity
        self.session = session
        self.session_key = secrets.token_hex(16)
        """Secret by which the worker resumes its session over another connection."""
        self.attempts = 0
        self.last_event = "hello"
        self.replies: set[Message] = set()
        self.report: Report | None = None


class WorkerTable:
    """Workers by node number. Without Slurm their names are not known before they connect."""

    def __init__(self, hosts: Sequence[str], nodes: int) -> None:
        self._hosts = hosts or ["the head", *(f"node {number}" for number in range(1, nodes))]
        self._assign_numbers = not hosts
        self._peers: dict[int, Peer] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def peers(self) -> list[Peer]:
        """Return the connected workers by node number."""
        return [peer for _, peer in sorted(self._peers.items())]

    def missing(self) -> list[int]:
        """Return the numbers of the workers that are not connected."""
        return [number for number in range(1, len(self._hosts)) if number not in self._peers]

    def add(self, identity: Identity, session: Session) -> Peer:
        """Add a worker; without Slurm it gets the next free number. Raises NotAdmitted."""
        if self._assign_numbers:
            identity = replace(identity, node_id=min(self.missing(), default=len(self._hosts)))
        number = identity.node_id
        if number in self._peers:
            raise NotAdmitted(f"node {number} is already connected from {self._peers[number].session.remote_address}")
        if not 0 < number < len(self._hosts):
            raise NotAdmitted(f"the cluster has {len(self._hosts)} nodes and this would be number {number}, from 0")
        self._peers[number] = Peer(identity, session)
        return self._peers[number]

    def find(self, resume: Resume) -> Peer:
        """Return the worker that resumes its session. Raises NotAdmitted."""
        peer = self._peers.get(resume.node_id)
        if peer is None or not hmac.compare_digest(resume.session.encode(), peer.session_key.encode()):
            raise NotAdmitted(f"node {resume.node_id} has no such session")
        if resume.attempt <= peer.attempts:
            raise NotAdmitted(
                f"node {resume.node_id} made attempt {peer.attempts} to return before attempt {resume.attempt}"
            )
        peer.attempts = resume.attempt
        return peer

    def remove(self, peer: Peer) -> None:
        """Remove a worker that has ended or is lost."""
        del self._peers[peer.identity.node_id]

    def hosts_without(self, reply: Message) -> list[str]:
        """Return the hosts of the workers that have not sent this reply."""
        return [peer.identity.host for peer in self.peers() if reply not in peer.replies]

    def head_address(self) -> str:
        """Return the address at which the first worker reached the head; empty without workers."""
        return self.peers()[0].session.local_address if self._peers else ""

    def not_formed(self, problems: Mapping[int, str], deadline: Deadline) -> ClusterNotFormed:
        """Return the error that names these nodes, each with its problem and its last event."""
        text = "; ".join(
            f"{self._hosts[number]}: {problem}"
            + (f" ({self._peers[number].last_event})" if number in self._peers else "")
            for number, problem in problems.items()
        )
        return ClusterNotFormed(
            f"{len(problems)} of {len(self._hosts)} nodes did not join within {deadline.timeout_s:.0f} s: {text}.",
            fix="Read those nodes' node.log and `sinfo -R`; requeue with --exclude, or raise VERLJOB_JOIN_TIMEOUT_S.",
            host=self._hosts[min(problems)],
        )
