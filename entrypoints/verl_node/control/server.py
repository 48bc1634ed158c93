"""The head's side of the control channel: admits workers, receives their reports, detects their loss."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from verl_node.control import messages
from verl_node.control.authentication import authenticate
from verl_node.control.channel import OWN_SIGNAL_GRACE_S, UNAUTHENTICATED_LIMIT, Channel
from verl_node.control.messages import JsonObject, Message, Unreadable, decode, encode
from verl_node.control.peers import NotAdmitted, Peer, WorkerTable
from verl_node.control.session import Session
from verl_node.errors import BadSettings, ClusterLost, NodeEnded, NodeError
from verl_node.network import address
from verl_node.reporting.events import Event
from verl_node.reporting.node_dirs import NodeDirs
from verl_node.reporting.verdict import Verdict
from verl_node.settings.identity import Identity
from verl_node.supervision.waiting import Deadline, until

_END_S = 1.0
_AUTHENTICATE_S, _HELLO_S = 5.0, 10.0
# Connections that asyncio accepts in one turn of the event loop, so that earlier ones get an answer in between; and the
# queue that the kernel keeps for the next turns.
_ACCEPTED_AT_ONCE, _QUEUE = 8, 1024
_LOG_PERIOD_S = 60.0
_EXTEND_S = 2.0  # before the deadline: check whether a missing node is still pulling its image


class ControlServer:
    """Listens on the control port; holds the connected workers."""

    def __init__(
        self, hosts: Sequence[str], nodes: int, token: bytes, on_event: Callable[[Event], None], silence_s: float
    ) -> None:
        self.workers = WorkerTable(hosts, nodes)
        self.on_row: Callable[[dict[str, Any]], None] = lambda row: None  # of metrics.jsonl; set if there is a training
        self._token = token
        self._on_event = on_event
        self._silence_s = silence_s
        self._unauthenticated = UnauthenticatedConnections(
            4 * nodes + 64, lambda address, text: self._on_event(Event.now(address, "join", "note", text))
        )
        self._listening: set[asyncio.Task[None]] = set()
        self._failure: NodeError | None = None
        self._failed = asyncio.Event()
        self._ending = asyncio.Event()
        self._server: asyncio.AbstractServer | None = None

    async def listen(self, port: int) -> None:
        """Accept connections on every interface. Raises BadSettings if the port is taken."""
        try:
            self._server = await asyncio.start_server(
                self._serve, None, port, limit=UNAUTHENTICATED_LIMIT, backlog=_ACCEPTED_AT_ONCE
            )
        except OSError as error:
            raise BadSettings(
                f"The control port {port} cannot be used: {error}.{address.listener(port)}",
                fix="Set VERLJOB_HEAD_PORTS=control,gcs,dashboard to free ports.",
            ) from error
        for server in self._server.sockets:
            with socket.socket(fileno=os.dup(server.fileno())) as duplicate:
                duplicate.listen(_QUEUE)

    async def wait_for_workers(self, deadline: Deadline, node_dirs: NodeDirs, images: Deadline) -> list[Identity]:
        """Return all workers by node number as soon as they are connected. Raises ClusterNotFormed.

        The deadline starts when the last of them has its image, for which they have until ``images``.
        """

        def complete() -> bool:
            missing = self.workers.missing()
            if missing and deadline.left_s() < _EXTEND_S < images.left_s() and node_dirs.pulling(missing):
                deadline.restart()
            return not missing

        if not await until(complete, deadline=deadline):
            last_lines = {number: node_dirs.last_line(number) for number in self.workers.missing()}
            problems = {
                number: f"never connected{line and f', its last line is: {line}'}"
                for number, line in last_lines.items()
            }
            raise self.workers.not_formed(problems, deadline)
        return [peer.identity for peer in self.workers.peers()]

    def broadcast(self, message: Message) -> None:
        """Send a message to every worker."""
        for peer in self.workers.peers():
            peer.session.send(message)

    async def watch(self) -> None:
        """Wait until a worker fails or is lost. Raises Reported or ClusterLost."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    async def end_job(self, verdict: Verdict) -> None:
        """Report the job's verdict to every worker, wait a moment for acknowledgements, and close all connections."""
        self._ending.set()
        self.broadcast(messages.JobEnded(verdict))
        sessions = [peer.session for peer in self.workers.peers()]
        await until(lambda: all(session.delivered for session in sessions), deadline=Deadline(_END_S), poll_s=0.05)
        for session in sessions:
            await session.close(0)
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = Channel(reader, writer, self._silence_s)
        self._unauthenticated.add(channel)
        admitted = False
        try:
            await asyncio.wait_for(self._authenticate(channel), _AUTHENTICATE_S)
            self._admit(channel, await asyncio.wait_for(channel.receive(), _HELLO_S))
            admitted = True
        except asyncio.TimeoutError:
            self._unauthenticated.log_refusal(
                channel.remote_address, "it did not authenticate, or sent no hello, in time"
            )
        except NodeError as error:
            self._refuse(channel, error.cause, error.fix)
        except (NotAdmitted, OSError) as error:
            self._refuse(channel, f"{error}.")
        except Exception as error:  # an error that a peer's bytes caused must not outlive its connection
            self._refuse(channel, f"{type(error).__name__}: {error}.")
        finally:
            self._unauthenticated.remove(channel)
            if not admitted:
                await channel.close()

    async def _authenticate(self, channel: Channel) -> None:
        await authenticate(channel, self._token, head=True)
        if self._token:  # at once: a worker that has our answer must not be crowded out any more
            self._unauthenticated.remove(channel)

    def _refuse(self, channel: Channel, why: str, fix: str = "Look for a second launch of this node.") -> None:
        self._unauthenticated.log_refusal(channel.remote_address, why)
        channel.send(encode(messages.Refused(why, fix)))

    def _admit(self, channel: Channel, raw: JsonObject | None) -> None:
        """Add a new worker, or resume the session of one that reconnects. Raises NotAdmitted, CheckFailed."""
        if raw is None:
            raise NotAdmitted(f"it sent no hello: {channel.end_reason}")
        message = decode(raw, messages.Hello, messages.Resume)
        if isinstance(message, messages.Resume):
            peer = self.workers.find(message)
            channel.send(encode(messages.Resumed(peer.session.received)))
            peer.session.attach(channel, message.received)
        elif self._ending.is_set():
            raise NotAdmitted("the job is ending")
        elif isinstance(message, messages.Hello):
            self._add(message.identity, channel)

    def _add(self, identity: Identity, channel: Channel) -> None:
        def note(text: str) -> None:
            if not self._ending.is_set():  # they close their connections then
                self._on_event(Event.now(peer.identity.host, "cluster", "note", text))

        session = Session(messages.TO_HEAD, self._silence_s, note)
        peer = self.workers.add(identity, session)
        channel.send(encode(messages.Welcome(peer.identity.node_id, peer.session_key)))
        session.attach(channel, 0)
        self._listening.add(asyncio.ensure_future(self._listen_to(peer)))

    async def _listen_to(self, peer: Peer) -> None:
        verdict = None
        try:
            while verdict is None and (message := await peer.session.receive()) is not None:
                if isinstance(message, messages.Failed):
                    verdict = message.verdict
                else:
                    self._handle(peer, message)
        except Unreadable as error:
            error.host = peer.identity.host
            self._fail(error)
        self.workers.remove(peer)
        await peer.session.close(0)
        await self._fail_by_loss(peer, verdict)

    def _handle(self, peer: Peer, message: Message) -> None:
        if isinstance(message, messages.WorkerEvent):
            event = message.event
            peer.last_event = f"{event.phase}, {event.event} {event.message}".rstrip()
            self._on_event(event)
        elif isinstance(message, messages.MetricsRow):
            self.on_row(message.row)
        elif isinstance(message, messages.ChecksDone):
            peer.report = replace(message.report, skew_s=round(message.time - time.time(), 3))
        else:
            peer.replies.add(message)

    async def _fail_by_loss(self, peer: Peer, verdict: Verdict | None) -> None:
        """Report a worker's end as the job's failure, unless the job is ending anyway."""
        if verdict is not None and verdict.origin == "self":
            self._fail(verdict.error())
            return
        try:
            await asyncio.wait_for(self._ending.wait(), OWN_SIGNAL_GRACE_S)
        except asyncio.TimeoutError:
            error, how = (ClusterLost, f"{peer.session.end_reason}.") if verdict is None else (NodeEnded, verdict.cause)
            self._fail(
                error(
                    f"Node {peer.identity.host} was lost: {how} Its last event was: {peer.last_event}.",
                    fix="See that node's node.log and `sinfo -R`; a requeue may help.",
                    host=peer.identity.host,
                )
            )

    def _fail(self, error: NodeError) -> None:
        if self._failure is None:
            self._failure = error
            self._failed.set()


class UnauthenticatedConnections:
    """Connections that have not authenticated yet, at most ``limit`` at once, and the log of refused ones."""

    def __init__(self, limit: int, log: Callable[[str, str], None]) -> None:
        self._limit = limit
        self._log = log
        self._connections: set[Channel] = set()
        self._refused = 0
        self._last = ("", "")
        self._timer: asyncio.TimerHandle | None = None

    def add(self, channel: Channel) -> None:
        """Add a new connection; above the limit, abort a random one of the address with the most connections.

        A worker authenticates within milliseconds, so it survives a flood from other addresses. Under a flood from its
        own machine it mostly survives, and else retries.
        """
        self._connections.add(channel)
        if len(self._connections) <= self._limit:
            return
        by_address = Counter(other.remote_address for other in self._connections)
        most = max(by_address.values())
        victim = secrets.choice([other for other in self._connections if by_address[other.remote_address] == most])
        victim.end_reason = "too many connections at once"
        self._connections.discard(victim)
        victim.abort()

    def remove(self, channel: Channel) -> None:
        """Remove a connection that has authenticated or was closed."""
        self._connections.discard(channel)

    def log_refusal(self, address: str, why: str) -> None:
        """Log a refused connection, now or with the others of this minute."""
        self._refused += 1
        self._last = (address, why)
        if self._timer is None:
            self._write_log()

    def _write_log(self) -> None:
        self._timer = None
        if not self._refused:
            return
        others = f" (and {self._refused - 1} more in the last minute)" if self._refused > 1 else ""
        address, why = self._last
        self._refused = 0
        self._log(address, f"turned away: {why}{others}")
        self._timer = asyncio.get_running_loop().call_later(_LOG_PERIOD_S, self._write_log)
