"""A session between head and worker: delivers messages once and in order across reconnects."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from verl_node.control.channel import LINE_LIMIT, Channel
from verl_node.control.messages import JsonObject, Message, Unreadable, decode, encode, read_count
from verl_node.supervision import heartbeat
from verl_node.supervision.waiting import Deadline, ended, until

UNACKNOWLEDGED_LIMIT = 64 << 20
"""Bytes of messages that the other side has not acknowledged: far more than a job sends within any patience."""
_FRAME_BYTES = 256  # of a line, around its message
_CUT = 16 << 10  # characters that remain of a text in a message that is too long
_CLOSE_S = 1.0
_LATEST_RETRY_S = 8.0

Reconnect = Callable[[int, int], Awaitable["tuple[Channel, int]"]]
"""Opens another connection, given the number of the attempt and of the last message received; returns it and the number
of the last message that the other side received. Raises OSError, asyncio.TimeoutError, PermissionMissing for an attempt
that failed, and SessionRefused if the other side does not know the session."""


class SessionRefused(Exception):
    """The other side, which knows the token, refuses to resume the session."""


class Session:
    """Messages between two nodes, with a heartbeat every second.

    Messages are numbered and kept until the other side acknowledges them; a new connection sends the unacknowledged
    ones again. A connection that ends or is silent is not a loss; a silence of ``patience_s`` is. Its seconds are
    counted one by one and not timed, so a process that was frozen or blocked itself counts them as one.
    """

    def __init__(
        self,
        accepted: Sequence[type[Message]],
        patience_s: float,
        note: Callable[[str], None],
        reconnect: Reconnect | None = None,
    ) -> None:
        """``accepted`` are the messages that the other side may send; ``note`` logs what happens to the connection."""
        self.end_reason = ""
        self.received = 0
        self.local_address = self.remote_address = ""
        self._accepted = accepted
        self._patience_s = patience_s
        self._note = note
        self._reconnect = reconnect
        self._channel: Channel | None = None
        self._inbox: asyncio.Queue[Message | Unreadable | None] = asyncio.Queue()
        self._sent = 0
        self._unacknowledged: deque[tuple[int, bytes]] = deque()
        self._unacknowledged_bytes = 0
        self._silent = 0
        self._attempts = 0
        self._reconnecting: asyncio.Task[None] | None = None
        self._problem = ""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def delivered(self) -> bool:
        """Whether the other side has received every message, or never will."""
        return not self._unacknowledged or bool(self.end_reason)

    def send(self, message: Message) -> None:
        """Send a message now, or as soon as there is a connection again."""
        if self.end_reason:
            return
        body = _shortened(encode(message))
        self._sent += 1
        self._unacknowledged.append((self._sent, body))
        self._unacknowledged_bytes += len(body)
        if self._channel is not None:
            self._channel.send(_frame(self._sent, body))
        if self._unacknowledged_bytes > UNACKNOWLEDGED_LIMIT:
            self._end(f"more than {UNACKNOWLEDGED_LIMIT >> 20} MiB of messages wait for it")

    async def receive(self) -> Message | None:
        """Return the next message, None when the other side is lost (see `end_reason`). Raises Unreadable."""
        message = await self._inbox.get()
        if message is None:
            self._inbox.put_nowait(None)
        if isinstance(message, Unreadable):
            raise message
        return message

    def attach(self, channel: Channel, received: int) -> None:
        """Continue over this connection; the other side has ``received`` that many messages. Raises Unreadable."""
        try:
            self._acknowledge(received)
        except Unreadable:
            channel.abort()
            raise
        if self._channel is not None:
            self._channel.abort()
        for number, body in self._unacknowledged:
            channel.send(_frame(number, body))
        first = not self.local_address
        self._channel = channel
        self.local_address, self.remote_address = channel.local_address, channel.remote_address
        self._start(self._read(channel))
        if first:
            heartbeat.add_beat(self._beat)
            self._start(self._watch_silence())
        else:
            silent_s = self._silent * heartbeat.BEAT_S
            self._note(f"the control connection is back after {silent_s:.0f} s without a heartbeat")
        self._silent, self._problem = 0, ""

    async def close(self, wait_s: float = _CLOSE_S) -> None:
        """Wait at most ``wait_s`` for acknowledgements, then close the connection."""
        await until(lambda: self.delivered, deadline=Deadline(wait_s), poll_s=0.02)
        channel, self._channel = self._channel, None
        self._end("it was closed")
        if channel is not None:
            await channel.close()
        await ended(self._tasks - {asyncio.current_task()})

    def _beat(self) -> None:
        channel = self._channel
        if channel is not None:
            channel.send_heartbeat(_acknowledgement(self.received))

    async def _read(self, channel: Channel) -> None:
        """Handle the lines of a connection until it ends or another replaces it."""
        while (frame := await channel.receive()) is not None and channel is self._channel:
            try:
                self._handle(channel, frame)
            except Unreadable as error:
                self._inbox.put_nowait(error)
                self._end(str(error))
        if channel is self._channel:
            self._channel = None
            channel.abort()
            self._problem = channel.end_reason
            self._note(
                f"the control connection broke: {channel.end_reason}; up to {self._patience_s:.0f} s for a new one"
            )

    def _handle(self, channel: Channel, frame: JsonObject) -> None:
        self._silent, self._problem = 0, ""
        if "received" in frame:
            self._acknowledge(read_count(frame, "received"))
        if "message" not in frame:
            return
        number, message = read_count(frame, "number"), decode(frame["message"], *self._accepted)
        if number > self.received + 1:
            raise Unreadable(f"message {number} after {self.received}")
        if number == self.received + 1:
            self.received = number
            self._inbox.put_nowait(message)
        channel.send(_acknowledgement(self.received))

    def _acknowledge(self, received: int) -> None:
        """Drop the messages that the other side has received."""
        if received > self._sent:
            raise Unreadable(f"a receipt for message {received} of {self._sent}")
        while self._unacknowledged and self._unacknowledged[0][0] <= received:
            self._unacknowledged_bytes -= len(self._unacknowledged.popleft()[1])

    async def _watch_silence(self) -> None:
        """Count the seconds of silence; reconnect before the patience is over."""
        retry_s = min(_LATEST_RETRY_S, self._patience_s / 3)
        while not self.end_reason:
            await asyncio.sleep(heartbeat.BEAT_S)
            self._silent += 1
            silent_s = self._silent * heartbeat.BEAT_S
            if silent_s >= self._patience_s:
                why = f" ({self._problem})" if self._problem else ""
                self._end(f"it sent no heartbeat for {self._patience_s:.0f} s{why}")
            elif self._channel is None or silent_s >= retry_s:
                self._start_reconnecting()

    def _start_reconnecting(self) -> None:
        if self._reconnect is not None and (self._reconnecting is None or self._reconnecting.done()):
            self._reconnecting = self._start(self._try(self._reconnect))

    async def _try(self, reconnect: Reconnect) -> None:
        self._attempts += 1
        try:
            channel, received = await reconnect(self._attempts, self.received)
        except (OSError, asyncio.TimeoutError) as error:
            self._problem = f"a new connection failed: {error or 'no answer in time'}"
        except SessionRefused as error:
            self._end(f"it does not resume this node's session: {error}")
        else:
            if self.end_reason:
                channel.abort()
            else:
                self.attach(channel, received)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Unreadable):
            self._inbox.put_nowait(error)
        if error is not None:
            self._end(f"its session ended by {type(error).__name__}: {error}")

    def _end(self, reason: str) -> None:
        if self.end_reason:
            return
        self.end_reason = reason
        self._inbox.put_nowait(None)
        heartbeat.remove_beat(self._beat)
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.abort()


def _frame(number: int, body: bytes) -> bytes:
    return b'{"number": %d, "message": %s}' % (number, body)


def _acknowledgement(received: int) -> bytes:
    return b'{"received": %d}' % received


def _shortened(body: bytes) -> bytes:
    """Return a message that fits into a line: in one that does not, such as a process's lines, long texts are cut."""
    if len(body) > LINE_LIMIT - _FRAME_BYTES:
        body = json.dumps(_cut(json.loads(body))).encode()
    if len(body) > LINE_LIMIT - _FRAME_BYTES:
        raise ValueError(f"a message of {len(body)} bytes: {body[:80]!r}")
    return body


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _CUT else f"{value[:_CUT]} … (cut)"
    if isinstance(value, dict):
        return {key: _cut(inner) for key, inner in value.items()}
    return [_cut(inner) for inner in value] if isinstance(value, list) else value
