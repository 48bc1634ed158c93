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

LINE_LIMIT = 1 << 20
UNAUTHENTICATED_LIMIT = 4096
"""Bytes of a line before authentication; asyncio buffers twice as much."""
# scancel reaches all nodes at once: a node may see the end of another before its own signal, which is the better cause.
OWN_SIGNAL_GRACE_S = 1.0
_CLOSE_S = 1.0


class Macs:
    """MACs of the lines of one direction of one connection, in order: a keyed hash of line number and line.

    A line that was changed, left out, sent twice, moved, or copied from another connection or direction has another
    MAC. Without a key the MACs are empty.
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
    """A connection that sends and receives JSON objects, one per line.

    asyncio reads. From `secure` on, writes bypass asyncio: the heartbeat thread writes, too.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._silence_s = silence_s
        self.local_address = str((writer.get_extra_info("sockname") or ("",))[0])
        self.remote_address = str((writer.get_extra_info("peername") or ("an unknown address",))[0])
        self.end_reason = "its connection ended"
        self._limit = UNAUTHENTICATED_LIMIT
        self._input = bytearray()
        self._incoming, self._outgoing = Macs(), Macs()
        self._unsent = bytearray()
        self._lock = threading.Lock()
        self._output: socket.socket | None = None
        self._closed = False

    def secure(self, *, incoming: Macs, outgoing: Macs) -> None:
        """Check and send MACs from now on, accept long lines, and allow writes from any thread."""
        connection: socket.socket = self._writer.get_extra_info("socket")
        for level, option, value in _keepalive(self._silence_s):
            connection.setsockopt(level, option, value)
        self._incoming, self._outgoing = incoming, outgoing
        self._limit = LINE_LIMIT
        self._output = connection.dup()
        self._output.setblocking(False)

    def send(self, body: bytes) -> None:
        """Send a JSON object, or queue it; that the connection is lost shows in `receive`."""
        with self._lock:
            line = self._outgoing.next(body) + b" " + body + b"\n"
            if self._closed:
                return
            if self._output is None:
                self._writer.write(line)
                return
            self._unsent += line
            self._flush()

    def send_heartbeat(self, body: bytes) -> None:
        """Send a heartbeat, or bytes that are still queued, which are one too."""
        if self._flushed():
            self.send(body)

    async def receive(self) -> dict[str, Any] | None:
        """Return the next JSON object; None if the connection ended or a line is not valid (see `end_reason`)."""
        line = await self._read_line()
        if line is None:
            return None
        mac, _, body = line.partition(b" ")
        if not hmac.compare_digest(mac, self._incoming.next(body)):
            self.end_reason = (
                "a line of its connection failed authentication: it was changed, moved or sent twice on the way"
            )
            return None
        try:
            content = json.loads(body.decode())
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            self.end_reason = "it sent a line that is not a JSON object"
            return None
        return content

    async def close(self) -> None:
        """Send queued lines, then close."""
        await until(self._flushed, deadline=Deadline(_CLOSE_S), poll_s=0.05)
        self._stop_writing()
        try:
            self._writer.close()
            await asyncio.wait_for(self._writer.wait_closed(), _CLOSE_S)
        except (OSError, asyncio.TimeoutError):
            self._writer.transport.abort()

    def abort(self) -> None:
        """Close at once; queued lines are lost."""
        self._stop_writing()
        self._writer.transport.abort()

    def _stop_writing(self) -> None:
        with self._lock:
            self._closed = True
            self._unsent.clear()
            if self._output is not None:
                self._output.close()
            self._output = None

    async def _read_line(self) -> bytes | None:
        while (end := self._input.find(b"\n")) < 0 and len(self._input) <= self._limit:
            try:
                data = await self._reader.read(self._limit)
            except OSError as error:
                self.end_reason = f"its connection ended: {error.strerror or error}"
                return None
            if not data:
                return None
            self._input += data
        if not 0 <= end <= self._limit:
            self.end_reason = f"it sent a line of more than {self._limit} bytes"
            return None
        line = bytes(self._input[:end])
        del self._input[: end + 1]
        return line

    def _flushed(self) -> bool:
        with self._lock:
            self._flush()
            return not self._unsent

    def _flush(self) -> None:
        try:
            while self._output is not None and self._unsent:
                del self._unsent[: self._output.send(self._unsent)]
        except BlockingIOError:
            pass  # sent with the next heartbeat
        except OSError:
            self._unsent.clear()


def _keepalive(silence_s: float) -> list[tuple[int, int, int]]:
    """Socket options by which the kernel times a connection out, never before the session does."""
    seconds = math.ceil(silence_s)
    return [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, seconds // 3)),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * seconds),
    ]
