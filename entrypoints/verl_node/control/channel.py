"""One TCP connection of the control channel: lines of JSON, each with a MAC and a counter."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import math
import socket
import threading
from typing import Any

from verl_node.supervision.waiting import Deadline, until

Message = dict[str, Any]

LINE_LIMIT = 1 << 20
STRANGER_LIMIT = 4096
"""Bytes of a line before the token was proved; asyncio buffers twice as much."""
# scancel reaches all nodes at once: the end of another node may be seen before our own signal, which then tells more.
OWN_SIGNAL_GRACE_S = 1.0
_CLOSE_S = 1.0


class Macs:
    """The MACs of the lines that go one way over one connection, in their order: a keyed hash of count and line.

    A line that was changed, left out, sent twice, moved, or taken from another connection or direction has another MAC.
    Without a key there is none.
    """

    def __init__(self, key: bytes = b"") -> None:
        self._key = key
        self._count = 0

    def next(self, body: bytes) -> bytes:
        """Return the MAC of the next line."""
        counted = self._count.to_bytes(8, "big") + body
        self._count += 1
        return hmac.new(self._key, counted, hashlib.sha256).hexdigest().encode() if self._key else b""


class Channel:
    """A connection that sends and receives messages; `secure` is for one that proved the token.

    asyncio reads; what is sent goes past it from then on, since beats come from the heart's thread.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._silence_s = silence_s
        self.local_address = str((writer.get_extra_info("sockname") or ("",))[0])
        self.remote_address = str((writer.get_extra_info("peername") or ("an unknown address",))[0])
        self.end = "its connection ended"
        self._limit = STRANGER_LIMIT
        self._input = bytearray()
        self._incoming, self._outgoing = Macs(), Macs()
        self._unsent = bytearray()
        self._sending = threading.Lock()
        self._outward: socket.socket | None = None
        self._closed = False

    def secure(self, *, incoming: Macs, outgoing: Macs) -> None:
        """Check and send MACs from now on, take long lines, and let a beat come from any thread."""
        connection: socket.socket = self._writer.get_extra_info("socket")
        for level, option, value in _keepalive(self._silence_s):
            connection.setsockopt(level, option, value)
        self._incoming, self._outgoing = incoming, outgoing
        self._limit = LINE_LIMIT
        self._outward = connection.dup()
        self._outward.setblocking(False)

    def send(self, message: Message) -> None:
        """Send a message, or queue it; a connection that is gone is noticed by whoever receives."""
        self.write(json.dumps(message).encode())

    def write(self, body: bytes) -> None:
        """Send a message that is JSON already."""
        with self._sending:
            line = self._outgoing.next(body) + b" " + body + b"\n"
            if self._closed:
                return
            if self._outward is None:
                self._writer.write(line)
                return
            self._unsent += line
            self._flush()

    def beat(self, body: bytes) -> None:
        """Send a sign of life, or what is still queued, which is one too."""
        if self._flushed():
            self.write(body)

    async def receive(self) -> Message | None:
        """Return the next message, None when the connection ended or carried what is no message (`end` says which)."""
        line = await self._line()
        if line is None:
            return None
        mac, _, body = line.partition(b" ")
        if not hmac.compare_digest(mac, self._incoming.next(body)):
            self.end = "a line of its connection failed authentication: it was changed, moved or sent twice on the way"
            return None
        try:
            message = json.loads(body.decode())
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self.end = "it sent a line that is no message"
            return None
        return message

    async def close(self) -> None:
        """Send what is queued, then close."""
        await until(self._flushed, deadline=Deadline(_CLOSE_S), poll_s=0.05)
        self._hang_up()
        try:
            self._writer.close()
            await asyncio.wait_for(self._writer.wait_closed(), _CLOSE_S)
        except (OSError, asyncio.TimeoutError):
            self._writer.transport.abort()

    def drop(self) -> None:
        """Close at once, with whatever is queued."""
        self._hang_up()
        self._writer.transport.abort()

    def _hang_up(self) -> None:
        with self._sending:
            self._closed = True
            self._unsent.clear()
            if self._outward is not None:
                self._outward.close()
            self._outward = None

    async def _line(self) -> bytes | None:
        while (end := self._input.find(b"\n")) < 0 and len(self._input) <= self._limit:
            try:
                data = await self._reader.read(self._limit)
            except OSError as error:
                self.end = f"its connection ended: {error.strerror or error}"
                return None
            if not data:
                return None
            self._input += data
        if not 0 <= end <= self._limit:
            self.end = f"it sent a line of more than {self._limit} bytes"
            return None
        line = bytes(self._input[:end])
        del self._input[: end + 1]
        return line

    def _flushed(self) -> bool:
        with self._sending:
            self._flush()
            return not self._unsent

    def _flush(self) -> None:
        try:
            while self._outward is not None and self._unsent:
                del self._unsent[: self._outward.send(self._unsent)]
        except BlockingIOError:
            pass  # the next beat takes it along
        except OSError:
            self._unsent.clear()


def _keepalive(silence_s: float) -> list[tuple[int, int, int]]:
    """Return the options by which the kernel gives up a connection, never before we would."""
    seconds = math.ceil(silence_s)
    return [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, seconds // 3)),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * seconds),
    ]
