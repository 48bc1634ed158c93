"""The worker's side of the control channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from verl_node.control.authentication import prove
from verl_node.control.channel import STRANGER_LIMIT, Channel, Message
from verl_node.control.messages import count, text
from verl_node.control.session import Refused, Session
from verl_node.errors import ClusterLost, ClusterNotFormed, PermissionMissing
from verl_node.network import address
from verl_node.supervision.waiting import Deadline

_RETRY_S = 0.5
_OPEN_S, _PROVE_S = 5.0, 10.0
# Of an attempt to go on over another connection. The kernel sends a SYN again after 1 s, 3 s, 7 s: a new attempt is
# sooner there when the network is back.
_OPEN_AGAIN_S, _RESUME_S = 3.0, 5.0


class _Way:
    """How to reach the head."""

    def __init__(self, host: str, port: int, own_address: str, token: bytes, silence_s: float) -> None:
        self.host = host
        self.port = port
        self._local = (own_address, 0) if own_address else None
        self._token = token
        self._silence_s = silence_s

    async def proved(self, open_s: float, prove_s: float) -> Channel:
        """Return a connection that has proved the token. Raises PermissionMissing, OSError, asyncio.TimeoutError."""
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(self.host, self.port, limit=STRANGER_LIMIT, local_addr=self._local), open_s
        )
        channel = Channel(reader, writer, self._silence_s)
        try:
            await asyncio.wait_for(prove(channel, self._token, head=False), prove_s)
        except BaseException:
            channel.drop()
            raise
        return channel


async def connect(
    host: str,
    port: int,
    *,
    own_address: str,
    token: bytes,
    hello: dict[str, Any],
    deadline: Deadline,
    silence_s: float,
    note: Callable[[str], None] = lambda words: None,
) -> tuple[Session, Message]:
    """Connect to the head as soon as it listens; return the session and its welcome.

    ``own_address``, when not empty, is the address to connect from. Raises ClusterNotFormed at the deadline,
    PermissionMissing when either side does not know the token, and whatever the head refuses us with.
    """
    way = _Way(host, port, own_address, token, silence_s)
    problem = "nothing tried"
    while deadline.left_s() > 0:
        try:
            channel = await way.proved(min(_OPEN_S, deadline.left_s() + 0.1), _PROVE_S)
        except (OSError, asyncio.TimeoutError) as error:  # also a connection that the head dropped in a crowd
            problem = str(error) or "no answer in time"
            await asyncio.sleep(min(_RETRY_S, deadline.left_s()))
            continue
        try:
            welcome = await _introduce(channel, hello)
            return _session(way, channel, welcome, silence_s, note), welcome
        except BaseException:
            channel.drop()
            raise
    raise ClusterNotFormed(
        f"The head did not answer at {address.join(host, port)} within {deadline.timeout_s:.0f} s: {problem}.",
        fix="See whether the head's node came up (its verdict and node.log), and whether a firewall lies between.",
    )


async def _introduce(channel: Channel, hello: dict[str, Any]) -> Message:
    channel.send({"kind": "hello", **hello, "address": channel.local_address})
    try:
        welcome = await asyncio.wait_for(channel.receive(), _PROVE_S)
    except asyncio.TimeoutError:
        welcome = None
    if welcome is None:
        raise PermissionMissing(
            f"The head at {channel.remote_address} closed the connection after our hello.",
            fix="Look at the head's output for why it refused this node.",
        )
    if welcome.get("kind") == "refused":
        raise PermissionMissing(f"The head refused this node: {welcome.get('why')}.", fix=str(welcome.get("fix")))
    return welcome


def _session(way: _Way, channel: Channel, welcome: Message, silence_s: float, note: Callable[[str], None]) -> Session:
    way.host = channel.remote_address  # a name service may be gone together with the network
    names = {"session": text(welcome, "session"), "node_id": count(welcome, "node_id")}

    async def resume(attempt: int, received: int) -> tuple[Channel, int]:
        deadline = Deadline(_OPEN_AGAIN_S + _RESUME_S)
        try:
            again = await way.proved(_OPEN_AGAIN_S, _RESUME_S)
        except PermissionMissing as error:  # whoever listens there now is not the head
            raise ConnectionError(str(error)) from error
        again.send({"kind": "resume", **names, "attempt": attempt, "received": received})
        try:
            answer = await asyncio.wait_for(again.receive(), deadline.left_s())
            return again, _resumed(answer, again)
        except BaseException:
            again.drop()
            raise

    session = Session(silence_s, note, resume)
    session.attach(channel, 0)
    return session


def _resumed(answer: Message | None, channel: Channel) -> int:
    """Return how many of our messages the head has received. Raises ConnectionError, Refused, Unreadable."""
    if answer is None:
        raise ConnectionError(channel.end)
    if answer.get("kind") == "refused":
        raise Refused(str(answer.get("why")))
    return count(answer, "received")


def lost(head: str, how: str) -> ClusterLost:
    """Return the error for a head that went away without saying how the job ended."""
    return ClusterLost(
        f"The head {head} was lost: {how}.",
        fix="See the head's verdict, its node.log and its node's state (sinfo -R); a requeue may help.",
        host=head,
    )
