"""The head's side of the control channel: it lets the workers in, hears their reports, and notices their loss."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from verl_node.checks.answer import Outcome
from verl_node.checks.nodes import Report
from verl_node.control.channel import LINE_LIMIT, OWN_SIGNAL_GRACE_S, Channel, Message, prove
from verl_node.control.roll import NotAdmitted, Peer, Roll
from verl_node.errors import BadSettings, ClusterLost, NodeEnded, NodeError
from verl_node.events import Event
from verl_node.identity import Identity
from verl_node.result import Verdict
from verl_node.traces import Traces
from verl_node.wait import Deadline, until

_GOODBYE_S = 1.0
_LOOK_S = 2.0  # before the deadline: whether an absent node is still at its image


class Peers:
    """The workers of the job, as they come and as long as they stay."""

    def __init__(self, hosts: Sequence[str], nodes: int, token: bytes, take_event: Callable[[Event], None]) -> None:
        self.roll = Roll(hosts, nodes)
        self.take_row: Callable[[Any], None] = lambda row: None  # of metrics.jsonl; set when there is a training
        self._token = token
        self._take_event = take_event
        self._failure: NodeError | None = None
        self._failed = asyncio.Event()
        self._ending = asyncio.Event()
        self._server: asyncio.AbstractServer | None = None

    async def listen(self, port: int) -> None:
        """Accept connections on every interface. Raises BadSettings where the port is taken."""
        try:
            self._server = await asyncio.start_server(self._serve, None, port, limit=LINE_LIMIT)
        except OSError as error:
            raise BadSettings(
                f"The control port {port} cannot be used: {error}.",
                fix="Set VERLJOB_HEAD_PORTS=control,gcs,dashboard to free ports.",
            ) from error

    async def all_here(self, deadline: Deadline, traces: Traces, images: Deadline) -> list[Identity]:
        """Wait for every worker's hello; return them by node number. Raises ClusterNotFormed naming who is missing.

        The deadline begins when the last of them has its image, for which they have until ``images``.
        """

        def here() -> bool:
            absent = self.roll.absent()
            if absent and deadline.left_s() < _LOOK_S < images.left_s() and traces.bringing(absent):
                deadline.restart()
            return not absent

        if not await until(here, deadline=deadline):
            known = {number: traces.last_word(number) for number in self.roll.absent()}
            told = {
                number: f"never connected{word and f', its last line is: {word}'}" for number, word in known.items()
            }
            raise self.roll.missing(told, deadline)
        return [peer.identity for peer in self.roll.peers()]

    def tell(self, kind: str, **fields: Any) -> None:
        """Send a message to every worker."""
        for peer in self.roll.peers():
            peer.channel.send(kind, **fields)

    async def watch(self) -> None:
        """Wait until a worker fails or is lost. Raises that, as Reported or ClusterLost."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    async def end(self, verdict: Verdict) -> None:
        """Tell every worker how the job ended, give them a moment to hear it, and hang up."""
        self._ending.set()
        self.tell("end", verdict=asdict(verdict))
        await until(lambda: len(self.roll) == 0, deadline=Deadline(_GOODBYE_S), poll_s=0.05)
        for peer in self.roll.peers():
            await peer.channel.close()
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = Channel(reader, writer)
        try:
            peer = await self._admit(channel)
        except (NodeError, NotAdmitted, TypeError) as error:  # a stranger's: for whoever reads the log, nothing more
            words = f"turned away: {error}"
            self._take_event({"host": channel.remote_address, "phase": "join", "event": "note", "message": words})
            channel.send("refused", why=str(error), fix="Look for a second launch of this node.")
        else:
            await self._listen_to(peer)
        await channel.close()

    async def _admit(self, channel: Channel) -> Peer:
        await prove(channel, self._token, head=True)
        hello = await channel.receive()
        if hello is None or self._ending.is_set():
            raise NotAdmitted("it said no hello" if hello is None else "the job is ending")
        peer = self.roll.admit(hello, channel)
        channel.send("welcome", node_id=peer.identity.node_id)
        return peer

    async def _listen_to(self, peer: Peer) -> None:
        while (message := await peer.channel.receive()) is not None:
            kind = message["kind"]
            if kind == "event":
                event = message["event"]
                peer.last = f"{event['phase']}, {event['event']} {event['message']}".rstrip()
                self._take_event(event)
            elif kind == "row":
                self.take_row(message["row"])
            elif kind == "checks":
                peer.report = _report(message)
            elif kind == "failed":
                await self._fail(peer, Verdict(**message["verdict"]))
            else:
                peer.replies.add(kind)
        self.roll.strike(peer)
        await self._fail(peer, None)

    async def _fail(self, peer: Peer, verdict: Verdict | None) -> None:
        """Take a worker's end as the job's failure, unless the job is ending anyway."""
        if verdict is not None and verdict.origin == "self":
            self._report(verdict.error())
            return
        try:
            await asyncio.wait_for(self._ending.wait(), OWN_SIGNAL_GRACE_S)
        except asyncio.TimeoutError:
            lost, how = (ClusterLost, f"{peer.channel.end}.") if verdict is None else (NodeEnded, verdict.cause)
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


def _report(message: Message) -> Report:
    """Read what a worker says of its checks; its clock is held against ours at the moment in which it arrives."""
    told = message["report"]
    outcomes = [Outcome(**outcome) for outcome in told["outcomes"]]
    return Report(told["host"], outcomes, told["facts"], round(message["time"] - time.time(), 3))
