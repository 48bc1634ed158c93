"""The head's side of the control channel: who is here, who is missing, and what the others report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from verl_node.control.channel import LINE_LIMIT, OWN_SIGNAL_GRACE_S, Channel, Message, prove
from verl_node.errors import BadSettings, ClusterLost, ClusterNotFormed, NodeError
from verl_node.events import Event
from verl_node.identity import Identity
from verl_node.result import Verdict
from verl_node.wait import Deadline, until

_GOODBYE_S = 1.0


class Peer:
    """A worker that said hello."""

    def __init__(self, identity: Identity, channel: Channel) -> None:
        self.identity = identity
        self.channel = channel
        self.last = "hello"
        self.replies: dict[str, Message] = {}


class Peers:
    """The workers of the job, as they come."""

    def __init__(self, hosts: Sequence[str], nodes: int, token: bytes, take_event: Callable[[Event], None]) -> None:
        self._hosts = hosts or ["the head", *(f"node {number}" for number in range(1, nodes))]
        self._by_hand = not hosts
        self._token = token
        self._take_event = take_event
        self._failure: NodeError | None = None
        self._failed = asyncio.Event()
        self._ending = asyncio.Event()
        self._server: asyncio.AbstractServer | None = None
        self.here: dict[int, Peer] = {}

    async def listen(self, port: int) -> None:
        """Accept connections on every interface. Raises BadSettings where the port is taken."""
        try:
            self._server = await asyncio.start_server(self._serve, None, port, limit=LINE_LIMIT)
        except OSError as error:
            raise BadSettings(
                f"The control port {port} cannot be used: {error}.",
                fix="Set VERLJOB_HEAD_PORTS=control,gcs,dashboard to free ports.",
            ) from error

    async def all_here(self, deadline: Deadline) -> list[Identity]:
        """Wait for every worker's hello; return them by node number. Raises ClusterNotFormed naming who is missing."""
        if not await until(lambda: not self.absent(), deadline=deadline):
            raise self.missing(self.absent(), deadline)
        return [peer.identity for _, peer in sorted(self.here.items())]

    def absent(self) -> list[int]:
        """Return the numbers of the workers that have not said hello."""
        return [number for number in range(1, len(self._hosts)) if number not in self.here]

    def missing(self, numbers: Sequence[int], deadline: Deadline) -> ClusterNotFormed:
        """Return the error that names these nodes, each with what was last heard of it."""
        told = "; ".join(
            f"{self._hosts[number]}: " + (self.here[number].last if number in self.here else "never connected")
            for number in numbers
        )
        return ClusterNotFormed(
            f"{len(numbers)} of {len(self._hosts)} nodes were not there after {deadline.timeout_s:.0f} s: {told}.",
            fix="Read those nodes' node.log and `sinfo -R`; requeue with --exclude, or raise VERLJOB_JOIN_TIMEOUT_S.",
            host=self._hosts[numbers[0]],
        )

    def reached_address(self) -> str:
        """Return the address of the head that the first worker reached it at; empty without workers."""
        return self.here[min(self.here)].channel.local_address if self.here else ""

    def tell(self, kind: str, **fields: Any) -> None:
        """Send a message to every worker."""
        for peer in self.here.values():
            peer.channel.send(kind, **fields)

    def without(self, kind: str) -> list[int]:
        """Return the numbers of the workers that have not sent this reply."""
        return [number for number, peer in sorted(self.here.items()) if kind not in peer.replies]

    async def watch(self) -> None:
        """Wait until a worker fails or is lost. Raises that, as Reported or ClusterLost."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    async def end(self, verdict: Verdict) -> None:
        """Tell every worker how the job ended, give them a moment to hear it, and hang up."""
        self._ending.set()
        self.tell("end", verdict=asdict(verdict))
        gone = Deadline(_GOODBYE_S)
        await until(lambda: not self.here, deadline=gone, poll_s=0.05)
        for peer in list(self.here.values()):
            await peer.channel.close()
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = Channel(reader, writer)
        try:
            await prove(channel, self._token, head=True)
            hello = await channel.receive()
            peer = self._admit(hello, channel) if hello is not None else None
        except (NodeError, TypeError, KeyError) as error:  # a stranger's: told to whoever reads the log, nothing more
            self._take_event(_stranger(channel.remote_address, str(error)))
            await channel.close()
            return
        if peer is not None:
            await self._listen_to(peer)
        await channel.close()

    def _admit(self, hello: Message, channel: Channel) -> Peer | None:
        fields = {key: value for key, value in hello.items() if key != "kind"}
        if self._by_hand:
            fields["node_id"] = min(self.absent(), default=len(self._hosts))
        identity = Identity(**fields)
        number = identity.node_id
        why = ""
        if not 0 < number < len(self._hosts):
            why = (
                f"the cluster has all of its {len(self._hosts)} nodes"
                if self._by_hand
                else f"there is no node {number}"
            )
        elif number in self.here:
            why = f"node {number} is already here from {self.here[number].channel.remote_address}"
        if why or self._ending.is_set():
            channel.send("refused", why=why or "the job is ending", fix="Look for a second launch of this node.")
            return None
        peer = self.here[number] = Peer(identity, channel)
        channel.send("welcome", node_id=number, nodes=len(self._hosts))
        return peer

    async def _listen_to(self, peer: Peer) -> None:
        number = peer.identity.node_id
        while (message := await peer.channel.receive()) is not None:
            if message["kind"] == "event":
                event = message["event"]
                peer.last = f"{event['phase']}, {event['event']} {event['message']}".rstrip()
                self._take_event(event)
            elif message["kind"] == "failed":
                await self._fail(peer, Verdict(**message["verdict"]))
            else:
                peer.replies[message["kind"]] = message
        del self.here[number]
        if not self._ending.is_set():
            await self._fail(peer, None)

    async def _fail(self, peer: Peer, verdict: Verdict | None) -> None:
        if verdict is not None and verdict.origin == "self":
            self._report(verdict.error())
            return
        try:
            await asyncio.wait_for(self._ending.wait(), OWN_SIGNAL_GRACE_S)
            return
        except asyncio.TimeoutError:
            pass
        how = "its connection ended without a word." if verdict is None else verdict.cause
        self._report(
            ClusterLost(
                f"Node {peer.identity.host} was lost: {how} Its last word was: {peer.last}.",
                fix="See that node's node.log and `sinfo -R`; a requeue may help.",
                host=peer.identity.host,
            )
        )

    def _report(self, error: NodeError) -> None:
        if self._failure is None:
            self._failure = error
            self._failed.set()


def _stranger(address: str, why: str) -> Event:
    return {"host": address, "phase": "join", "event": "note", "message": f"turned away: {why}"}
