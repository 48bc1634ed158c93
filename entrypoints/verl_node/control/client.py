"""The worker's side of the control channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from verl_node.control.authentication import authenticate
from verl_node.control.channel import UNAUTHENTICATED_LIMIT, Channel
from verl_node.control.messages import TO_WORKER, Hello, Refused, Resume, Resumed, Welcome, decode, encode
from verl_node.control.session import Session, SessionRefused
from verl_node.errors import ClusterLost, ClusterNotFormed, PermissionMissing
from verl_node.network import address
from verl_node.settings.identity import Identity
from verl_node.supervision.waiting import Deadline

_RETRY_S = 0.5
_OPEN_S, _ANSWER_S = 5.0, 10.0
# The same for an attempt to reconnect. The kernel sends a SYN again after 1 s, 3 s, 7 s: a new attempt is earlier when
# the network is back.
_REOPEN_S, _RESUME_S = 3.0, 5.0


class _Head:
    """How to reach the head."""

    def __init__(self, host: str, port: int, own_address: str, token: bytes, silence_s: float) -> None:
        self.host = host
        self.port = port
        self._local = (own_address, 0) if own_address else None
        self._token = token
        self._silence_s = silence_s

    async def open(self, open_s: float, answer_s: float) -> Channel:
        """Return an authenticated connection. Raises PermissionMissing, OSError, asyncio.TimeoutError."""
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(self.host, self.port, limit=UNAUTHENTICATED_LIMIT, local_addr=self._local), open_s
        )
        channel = Channel(reader, writer, self._silence_s)
        try:
            await asyncio.wait_for(authenticate(channel, self._token, head=False), answer_s)
        except BaseException:
            channel.abort()
            raise
        return channel


async def connect(
    host: str,
    port: int,
    *,
    own_address: str,
    token: bytes,
    identity: Identity,
    deadline: Deadline,
    silence_s: float,
    note: Callable[[str], None] = lambda text: None,
) -> Session:
    """Connect to the head as soon as it listens, and introduce this node.

    ``own_address``, when not empty, is the address to connect from. Raises ClusterNotFormed at the deadline,
    PermissionMissing if a side does not know the token or the head refuses this node, and Unreadable.
    """
    head = _Head(host, port, own_address, token, silence_s)
    problem = "nothing tried"
    while deadline.left_s() > 0:
        try:
            channel = await head.open(min(_OPEN_S, deadline.left_s() + 0.1), _ANSWER_S)
        except (OSError, asyncio.TimeoutError) as error:  # also a connection that the head aborted in a crowd
            problem = str(error) or "no answer in time"
            await asyncio.sleep(min(_RETRY_S, deadline.left_s()))
            continue
        try:
            welcome = await _introduce(channel, identity)
            return _session(head, channel, welcome, silence_s, note)
        except BaseException:
            channel.abort()
            raise
    raise ClusterNotFormed(
        f"The head did not answer at {address.join(host, port)} within {deadline.timeout_s:.0f} s: {problem}.",
        fix="See whether the head's node came up (its verdict and node.log), and whether a firewall blocks the port.",
    )


async def _introduce(channel: Channel, identity: Identity) -> Welcome:
    channel.send(encode(Hello(identity.at(channel.local_address))))
    try:
        answer = await asyncio.wait_for(channel.receive(), _ANSWER_S)
    except asyncio.TimeoutError:
        answer = None
    if answer is None:
        raise PermissionMissing(
            f"The head at {channel.remote_address} closed the connection after our hello.",
            fix="Look at the head's output for why it refused this node.",
        )
    welcome = decode(answer, Welcome, Refused)
    if isinstance(welcome, Welcome):
        return welcome
    assert isinstance(welcome, Refused)
    raise PermissionMissing(f"The head refused this node: {welcome.why}", fix=welcome.fix)


def _session(head: _Head, channel: Channel, welcome: Welcome, silence_s: float, note: Callable[[str], None]) -> Session:
    head.host = channel.remote_address  # a name service may be lost together with the network

    async def reconnect(attempt: int, received: int) -> tuple[Channel, int]:
        deadline = Deadline(_REOPEN_S + _RESUME_S)
        try:
            channel = await head.open(_REOPEN_S, _RESUME_S)
        except PermissionMissing as error:  # another process listens at this address now
            raise ConnectionError(str(error)) from error
        try:
            channel.send(encode(Resume(welcome.session, welcome.node_id, attempt, received)))
            answer = await asyncio.wait_for(channel.receive(), deadline.left_s())
            if answer is None:
                raise ConnectionError(channel.end_reason)
            resumed = decode(answer, Resumed, Refused)
            if isinstance(resumed, Refused):
                raise SessionRefused(resumed.why.rstrip("."))
            assert isinstance(resumed, Resumed)
            return channel, resumed.received
        except BaseException:
            channel.abort()
            raise

    session = Session(TO_WORKER, silence_s, note, reconnect)
    session.attach(channel, 0)
    return session


def lost(head: str, how: str) -> ClusterLost:
    """Return the error for a head that went away without reporting how the job ended."""
    return ClusterLost(
        f"The head {head} was lost: {how}.",
        fix="See the head's verdict, its node.log and its node's state (sinfo -R); a requeue may help.",
        host=head,
    )
