"""One connection of the control channel: JSON lines, the challenge, and what notices a host that vanished or froze."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import socket
import threading
from typing import Any

from verl_node import heart
from verl_node.errors import PermissionMissing
from verl_node.wait import Deadline, until

Message = dict[str, Any]

LINE_LIMIT = 1 << 20
# scancel reaches all nodes at once: the end of another node may be seen before our own signal, which then tells more.
OWN_SIGNAL_GRACE_S = 1.0
_HANDSHAKE_TIMEOUT_S = 10.0
_CLOSE_S = 1.0
_BEAT = b'{"kind": "beat"}\n'
# Where the other side sends no beats: a host that vanishes is noticed after 5 + 3 * 3 s, also when we only listen.
_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 14000}


class Channel:
    """A connection that sends and receives messages, and gives a sign of life every second.

    asyncio reads; what is sent goes past it, since beats come from the heart's thread.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.local_address = str(writer.get_extra_info("sockname")[0])
        self.remote_address = str(writer.get_extra_info("peername")[0])
        self.end = "its connection ended without a word"
        self._unsent = bytearray()
        self._sending = threading.Lock()
        self._outward: socket.socket | None = connection.dup()
        self._outward.setblocking(False)
        heart.also(self._beat)

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message, or queue it; a connection that is gone is noticed by whoever receives."""
        self._write(json.dumps({"kind": kind, **fields}).encode() + b"\n")

    async def receive(self) -> Message | None:
        """Return the next message, None when the other side is gone or gives no sign of life (`end` says which).

        What is no message ends the connection too.
        """
        while True:
            try:
                line = await self._line()
                message = json.loads(line) if line.endswith(b"\n") else None
            except (OSError, ValueError):  # reset, or not JSON, or longer than LINE_LIMIT
                return None
            if not isinstance(message, dict) or "kind" not in message:
                return None
            if message["kind"] != "beat":
                return message

    async def close(self) -> None:
        """Send what is queued, then close."""
        heart.no_longer(self._beat)
        await until(self._flushed, deadline=Deadline(_CLOSE_S), poll_s=0.05)
        with self._sending:
            if self._outward is not None:
                self._outward.close()
            self._outward = None
        try:
            self._writer.close()
            await asyncio.wait_for(self._writer.wait_closed(), _CLOSE_S)
        except (OSError, asyncio.TimeoutError):
            self._writer.transport.abort()

    async def _line(self) -> bytes:
        reading = asyncio.ensure_future(self._reader.readline())
        try:
            for _ in range(heart.SILENT_BEATS):
                done, _ = await asyncio.wait({reading}, timeout=heart.BEAT_S)
                if done:
                    return reading.result()
        finally:
            reading.cancel()
        self.end = f"it gave no sign of life for {heart.SILENT_BEATS * heart.BEAT_S:.0f} s"
        return b""

    def _beat(self) -> None:
        self._write(_BEAT)

    def _flushed(self) -> bool:
        self._write(b"")
        return not self._unsent

    def _write(self, data: bytes) -> None:
        with self._sending:
            self._unsent += data
            try:
                while self._outward is not None and self._unsent:
                    del self._unsent[: self._outward.send(self._unsent)]
            except BlockingIOError:
                pass  # the next beat takes it along
            except OSError:
                self._unsent.clear()


async def prove(channel: Channel, token: bytes, *, head: bool) -> None:
    """Show the other side that we know the job's token, and have it show that too; without one there is no challenge.

    Each side answers the other's random challenge with a keyed hash that also says which side it is, so that an answer
    cannot be sent back. Raises PermissionMissing.
    """
    challenge = secrets.token_hex(32) if token else ""
    channel.send("challenge", challenge=challenge)
    theirs = await _expect(channel, "challenge")
    channel.send("answer", answer=_answer(token, str(theirs.get("challenge")), head=head))
    answer = await _expect(channel, "answer")
    if bool(theirs.get("challenge")) != bool(token):
        raise _refused(channel, "One side has a token and the other has none")
    if token and not hmac.compare_digest(str(answer.get("answer")), _answer(token, challenge, head=not head)):
        raise _refused(channel, "Its token is not ours")


async def _expect(channel: Channel, kind: str) -> Message:
    try:
        message = await asyncio.wait_for(channel.receive(), _HANDSHAKE_TIMEOUT_S)
    except asyncio.TimeoutError:
        message = None
    if message is None or message["kind"] != kind:
        raise _refused(channel, f"It did not send its {kind}")
    return message


def _answer(token: bytes, challenge: str, *, head: bool) -> str:
    side = b"head" if head else b"worker"
    return hmac.new(token, side + b" " + challenge.encode(), hashlib.sha256).hexdigest() if token else ""


def _refused(channel: Channel, why: str) -> PermissionMissing:
    return PermissionMissing(
        f"{channel.remote_address} is not of this job: {why}.",
        fix="Give every node the same VERLJOB_TOKEN_FILE, and one job its own control port.",
    )
