"""The worker's side of the control channel."""

from __future__ import annotations

import asyncio
from typing import Any

from verl_node import address
from verl_node.control.channel import LINE_LIMIT, Channel, Message, prove
from verl_node.errors import ClusterLost, ClusterNotFormed, PermissionMissing
from verl_node.wait import Deadline

_RETRY_S = 0.5


async def connect(
    host: str, port: int, *, own_address: str, token: bytes, hello: dict[str, Any], deadline: Deadline
) -> tuple[Channel, Message]:
    """Connect to the head as soon as it listens; return the channel and its welcome.

    ``own_address``, when not empty, is the address to connect from. Raises ClusterNotFormed at the deadline,
    PermissionMissing when either side does not know the token, and whatever the head refuses us with.
    """
    problem = "nothing tried"
    while deadline.left_s() > 0:
        try:
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(
                    host, port, limit=LINE_LIMIT, local_addr=(own_address, 0) if own_address else None
                ),
                min(5.0, deadline.left_s() + 0.1),
            )
        except (OSError, asyncio.TimeoutError) as error:
            problem = str(error) or "no answer in 5 s"
            await asyncio.sleep(min(_RETRY_S, deadline.left_s()))
            continue
        return await _introduce(Channel(reader, writer), token, hello)
    raise ClusterNotFormed(
        f"The head did not answer at {address.join(host, port)} within {deadline.timeout_s:.0f} s: {problem}.",
        fix="See whether the head's node came up (its verdict and node.log), and whether a firewall lies between.",
    )


async def _introduce(channel: Channel, token: bytes, hello: dict[str, Any]) -> tuple[Channel, Message]:
    await prove(channel, token, head=False)
    channel.send("hello", **{**hello, "address": channel.local_address})
    welcome = await channel.receive()
    if welcome is None:
        raise PermissionMissing(
            f"The head at {channel.remote_address} closed the connection after our hello.",
            fix="Look at the head's output for why it refused this node.",
        )
    if welcome["kind"] == "refused":
        raise PermissionMissing(f"The head refused this node: {welcome['why']}.", fix=str(welcome["fix"]))
    return channel, welcome


def lost(head: str, how: str) -> ClusterLost:
    """Return the error for a head that went away without saying how the job ended."""
    return ClusterLost(
        f"The head {head} was lost: {how}.",
        fix="See the head's verdict, its node.log and its node's state (sinfo -R); a requeue may help.",
        host=head,
    )
