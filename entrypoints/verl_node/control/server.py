"""The head's side of the control channel: admits workers, receives their reports, detects their loss."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from verl_node.control import messages
from verl_node.control.authentication import prove
from verl_node.control.channel import OWN_SIGNAL_GRACE_S, STRANGER_LIMIT, Channel, Message
from verl_node.control.messages import Unreadable, count
from verl_node.control.peers import NotAdmitted, Peer, WorkerTable
from verl_node.control.session import Session
from verl_node.control.unauthenticated import Strangers
from verl_node.errors import BadSettings, ClusterLost, NodeEnded, NodeError
from verl_node.network import address
from verl_node.reporting.events import Event
from verl_node.reporting.node_dirs import NodeDirs
from verl_node.reporting.verdict import Verdict
from verl_node.settings.identity import Identity
from verl_node.supervision.waiting import Deadline, until

_GOODBYE_S = 1.0
_PROVE_S, _HELLO_S = 5.0, 10.0  # of a new connection, and of one that has proved the token
# Connections that are accepted in one turn of the event loop, so that those before get an answer in between; and that
# the kernel keeps for the next turns.
_AT_ONCE, _QUEUE = 8, 1024
_LOOK_S = 2.0  # before the deadline: whether an absent node is still at its image


class Peers:
    """The workers of the job, as they come and as long as they stay."""

    def __init__(
        self,
        hosts: Sequence[str],
        nodes: int,
        token: bytes,
        take_event: Callable[[Event], None],
        silence_s: float,
    ) -> None:
        self.workers = WorkerTable(hosts, nodes)
        self.take_row: Callable[[Any], None] = lambda row: None  # of metrics.jsonl; set when there is a training
        self._token = token
        self._take_event = take_event
        self._silence_s = silence_s
        self._strangers = Strangers(4 * nodes + 64, lambda address, words: self._note(address, "join", words))
        self._listening: set[asyncio.Task[None]] = set()
        self._failure: NodeError | None = None
        self._failed = asyncio.Event()
        self._ending = asyncio.Event()
        self._server: asyncio.AbstractServer | None = None

    async def listen(self, port: int) -> None:
        """Accept connections on every interface. Raises BadSettings where the port is taken."""
        try:
            self._server = await asyncio.start_server(self._serve, None, port, limit=STRANGER_LIMIT, backlog=_AT_ONCE)
        except OSError as error:
            raise BadSettings(
                f"The control port {port} cannot be used: {error}.{address.listener(port)}",
                fix="Set VERLJOB_HEAD_PORTS=control,gcs,dashboard to free ports.",
            ) from error
        for server in self._server.sockets:
            with socket.socket(fileno=os.dup(server.fileno())) as again:
                again.listen(_QUEUE)

    async def all_here(self, deadline: Deadline, traces: NodeDirs, images: Deadline) -> list[Identity]:
        """Wait for every worker's hello; return them by node number. Raises ClusterNotFormed naming who is missing.

        The deadline begins when the last of them has its image, for which they have until ``images``.
        """

        def here() -> bool:
            absent = self.workers.absent()
            if absent and deadline.left_s() < _LOOK_S < images.left_s() and traces.bringing(absent):
                deadline.restart()
            return not absent

        if not await until(here, deadline=deadline):
            known = {number: traces.last_word(number) for number in self.workers.absent()}
            told = {
                number: f"never connected{word and f', its last line is: {word}'}" for number, word in known.items()
            }
            raise self.workers.missing(told, deadline)
        return [peer.identity for peer in self.workers.peers()]

    def tell(self, kind: str, **fields: Any) -> None:
        """Send a message to every worker."""
        for peer in self.workers.peers():
            peer.session.send(kind, **fields)

    async def watch(self) -> None:
        """Wait until a worker fails or is lost. Raises that, as Reported or ClusterLost."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    async def end(self, verdict: Verdict) -> None:
        """Tell every worker how the job ended, give them a moment to hear it, and hang up."""
        self._ending.set()
        self.tell("end", verdict=asdict(verdict))
        told = [peer.session for peer in self.workers.peers()]
        await until(lambda: all(session.delivered for session in told), deadline=Deadline(_GOODBYE_S), poll_s=0.05)
        for session in told:
            await session.close(0)
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = Channel(reader, writer, self._silence_s)
        self._strangers.enter(channel)
        let_in = False
        try:
            await asyncio.wait_for(self._prove(channel), _PROVE_S)
            self._let_in(channel, await asyncio.wait_for(channel.receive(), _HELLO_S))
            let_in = True
        except asyncio.TimeoutError:
            self._strangers.turn_away(channel.remote_address, "it did not prove the token, or said no hello, in time")
        except (NodeError, NotAdmitted, OSError) as error:
            self._turn_away(channel, str(error))
        except Exception as error:  # whatever a stranger's bytes led to must not outlive its connection
            self._turn_away(channel, f"{type(error).__name__}: {error}")
        finally:
            self._strangers.leave(channel)
            if not let_in:
                await channel.close()

    async def _prove(self, channel: Channel) -> None:
        await prove(channel, self._token, head=True)
        if self._token:  # at once: a worker that has our answer is not to be crowded out any more
            self._strangers.leave(channel)

    def _turn_away(self, channel: Channel, why: str) -> None:
        self._strangers.turn_away(channel.remote_address, why)
        channel.send({"kind": "refused", "why": why, "fix": "Look for a second launch of this node."})

    def _let_in(self, channel: Channel, message: Message | None) -> None:
        """Let in a new worker, or one that returns. Raises NotAdmitted, Unreadable."""
        if message is None:
            raise NotAdmitted(f"it said no hello: {channel.end}")
        if message.get("kind") == "resume":
            peer = self.workers.returning(message)
            channel.send({"kind": "resumed", "received": peer.session.received})
            peer.session.attach(channel, count(message, "received"))
        elif self._ending.is_set():
            raise NotAdmitted("the job is ending")
        else:
            self._admit(message, channel)

    def _admit(self, hello: Message, channel: Channel) -> None:
        def note(words: str) -> None:
            if not self._ending.is_set():  # they hang up then
                self._note(peer.identity.host, "cluster", words)

        session = Session(self._silence_s, note)
        peer = self.workers.admit(hello, session)
        channel.send({"kind": "welcome", "node_id": peer.identity.node_id, "session": peer.key})
        session.attach(channel, 0)
        self._listening.add(asyncio.ensure_future(self._listen_to(peer)))

    async def _listen_to(self, peer: Peer) -> None:
        verdict = None
        try:
            while verdict is None and (message := await peer.session.receive()) is not None:
                verdict = self._take(peer, message)
        except Unreadable as error:
            error.host = peer.identity.host
            self._report(error)
        self.workers.strike(peer)
        await peer.session.close(0)
        await self._fail(peer, verdict)

    def _take(self, peer: Peer, message: Message) -> Verdict | None:
        """Take a message; return the worker's verdict when it is that. Raises Unreadable."""
        kind = message["kind"]
        if kind == "failed":
            return messages.verdict(message)
        if kind == "event":
            event = messages.event(message)
            peer.last = f"{event['phase']}, {event['event']} {event['message']}".rstrip()
            self._take_event(event)
        elif kind == "row":
            self.take_row(message.get("row"))
        elif kind == "checks":
            peer.report = messages.report(message)
        else:
            peer.replies.add(kind)
        return None

    def _note(self, host: str, phase: str, words: str) -> None:
        now = round(time.time(), 3)
        self._take_event({"time": now, "host": host, "phase": phase, "event": "note", "message": words})

    async def _fail(self, peer: Peer, verdict: Verdict | None) -> None:
        """Take a worker's end as the job's failure, unless the job is ending anyway."""
        if verdict is not None and verdict.origin == "self":
            self._report(verdict.error())
            return
        try:
            await asyncio.wait_for(self._ending.wait(), OWN_SIGNAL_GRACE_S)
        except asyncio.TimeoutError:
            lost, how = (ClusterLost, f"{peer.session.end}.") if verdict is None else (NodeEnded, verdict.cause)
            self._report(
                lost(
                    f"Node {peer.identity.host} was lost: {how} Its last word was: {peer.last}.",
                    fix="See that node's node.log and `sinfo -R`; a requeue may help.",
                    host=peer.identity.host,
                )
            )

    def _report(self, error: NodeError) -> None:
        if self._failure is None:
            self._failure = error
            self._failed.set()
