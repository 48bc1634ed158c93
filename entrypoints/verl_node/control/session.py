"""A session between head and worker: delivers messages once and in order across reconnects."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from verl_node.control.channel import LINE_LIMIT, Channel, Message
from verl_node.control.messages import Unreadable, count
from verl_node.supervision import heartbeat
from verl_node.supervision.waiting import Deadline, ended, until

KEPT_LIMIT = 64 << 20
"""Bytes of messages that wait for the other side's receipt: far more than a job sends within any patience."""
_FRAME_BYTES = 256  # what stands around a message in its line
_CUT = 16 << 10  # characters that are left of a text in a message that is too long
_CLOSE_S = 1.0
_LATEST_RETRY_S = 8.0

Resume = Callable[[int, int], Awaitable["tuple[Channel, int]"]]
"""Opens another connection, given the attempt's number and that of the last message received; returns it and the number
that the other side received. Raises OSError, asyncio.TimeoutError, PermissionMissing for an attempt that failed, and
Refused where the other side knows of no such session."""


class Refused(Exception):
    """The other side, which knows the token, will not go on with the session."""


class Session:
    """What two nodes have to say to each other, with a sign of life every second.

    Messages are numbered and kept until the other side has received them; a new connection brings what is missing. A
    connection that ends or is silent is no loss: that is a silence of ``patience_s``. Its seconds are counted one by
    one and not timed, so a process that was frozen itself, or held up, counts them as one.
    """

    def __init__(self, patience_s: float, note: Callable[[str], None], resume: Resume | None = None) -> None:
        self.end = ""
        self.received = 0
        self.local_address = self.remote_address = ""
        self._patience_s = patience_s
        self._note = note
        self._resume = resume
        self._channel: Channel | None = None
        self._inbox: asyncio.Queue[Message | Unreadable | None] = asyncio.Queue()
        self._sent = 0
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        self._silent = 0
        self._attempts = 0
        self._resuming: asyncio.Task[None] | None = None
        self._problem = ""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def delivered(self) -> bool:
        """Whether the other side has received all that was sent, or never will."""
        return not self._kept or bool(self.end)

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message now, or as soon as there is a connection again."""
        if self.end:
            return
        body = _text({"kind": kind, **fields})
        self._sent += 1
        self._kept.append((self._sent, body))
        self._kept_bytes += len(body)
        if self._channel is not None:
            self._channel.write(_frame(self._sent, body))
        if self._kept_bytes > KEPT_LIMIT:
            self._finish(f"more than {KEPT_LIMIT >> 20} MiB of messages wait for it")

    async def receive(self) -> Message | None:
        """Return the next message, None when the other side is lost (`end` says why). Raises Unreadable."""
        message = await self._inbox.get()
        if message is None:
            self._inbox.put_nowait(None)
        if isinstance(message, Unreadable):
            raise message
        return message

    def attach(self, channel: Channel, received: int) -> None:
        """Go on over this connection, first with what the other side has not received. Raises Unreadable."""
        try:
            self._forget(received)
        except Unreadable:
            channel.drop()
            raise
        if self._channel is not None:
            self._channel.drop()
        for number, body in self._kept:
            channel.write(_frame(number, body))
        first = not self.local_address
        self._channel = channel
        self.local_address, self.remote_address = channel.local_address, channel.remote_address
        self._start(self._read(channel))
        if first:
            heartbeat.also(self._beat)
            self._start(self._watch())
        else:
            self._note(f"the control connection is back after {self._silent * heartbeat.BEAT_S:.0f} s without a sign")
        self._silent, self._problem = 0, ""

    async def close(self, wait_s: float = _CLOSE_S) -> None:
        """Give what was not received this long to arrive, then hang up."""
        await until(lambda: self.delivered, deadline=Deadline(wait_s), poll_s=0.02)
        channel, self._channel = self._channel, None
        self._finish("it was closed")
        if channel is not None:
            await channel.close()
        await ended(self._tasks - {asyncio.current_task()})

    def _beat(self) -> None:
        channel = self._channel
        if channel is not None:
            channel.beat(_receipt(self.received))

    async def _read(self, channel: Channel) -> None:
        """Take what comes over a connection until it ends, or another takes its place."""
        while (frame := await channel.receive()) is not None and channel is self._channel:
            try:
                self._take(channel, frame)
            except Unreadable as error:
                self._inbox.put_nowait(error)
                self._finish(str(error))
        if channel is self._channel:
            self._channel = None
            channel.drop()
            self._problem = channel.end
            self._note(f"the control connection broke: {channel.end}; up to {self._patience_s:.0f} s for a new one")

    def _take(self, channel: Channel, frame: Message) -> None:
        self._silent, self._problem = 0, ""
        if "received" in frame:
            self._forget(count(frame, "received"))
        if "message" not in frame:
            return
        number, message = count(frame, "number"), frame["message"]
        if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
            raise Unreadable("a message without a kind")
        if number > self.received + 1:
            raise Unreadable(f"message {number} after {self.received}")
        if number == self.received + 1:
            self.received = number
            self._inbox.put_nowait(message)
        channel.write(_receipt(self.received))

    def _forget(self, received: int) -> None:
        """Keep no longer what the other side has received."""
        if received > self._sent:
            raise Unreadable(f"a receipt for message {received} of {self._sent}")
        while self._kept and self._kept[0][0] <= received:
            self._kept_bytes -= len(self._kept.popleft()[1])

    async def _watch(self) -> None:
        """Count the silence; have a new connection made before the patience is over."""
        retry_s = min(_LATEST_RETRY_S, self._patience_s / 3)
        while not self.end:
            await asyncio.sleep(heartbeat.BEAT_S)
            self._silent += 1
            silent_s = self._silent * heartbeat.BEAT_S
            if silent_s >= self._patience_s:
                why = f" ({self._problem})" if self._problem else ""
                self._finish(f"it gave no sign of life for {self._patience_s:.0f} s{why}")
            elif self._channel is None or silent_s >= retry_s:
                self._start_resuming()

    def _start_resuming(self) -> None:
        if self._resume is not None and (self._resuming is None or self._resuming.done()):
            self._resuming = self._start(self._try(self._resume))

    async def _try(self, resume: Resume) -> None:
        self._attempts += 1
        try:
            channel, received = await resume(self._attempts, self.received)
        except (OSError, asyncio.TimeoutError) as error:
            self._problem = f"a new connection failed: {error or 'no answer in time'}"
        except Refused as error:
            self._finish(f"it will not go on with this node's session: {error}")
        else:
            if self.end:
                channel.drop()
            else:
                self.attach(channel, received)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Unreadable):
            self._inbox.put_nowait(error)
        if error is not None:
            self._finish(f"its session ended by {type(error).__name__}: {error}")

    def _finish(self, why: str) -> None:
        if self.end:
            return
        self.end = why
        self._inbox.put_nowait(None)
        heartbeat.no_longer(self._beat)
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.drop()


def _frame(number: int, body: bytes) -> bytes:
    return b'{"number": %d, "message": %s}' % (number, body)


def _receipt(received: int) -> bytes:
    return b'{"received": %d}' % received


def _text(message: Message) -> bytes:
    """Return it as JSON that fits into a line; texts in one that is too long are cut, such as a process's lines."""
    body = json.dumps(message).encode()
    if len(body) > LINE_LIMIT - _FRAME_BYTES:
        body = json.dumps(_cut(message)).encode()
    if len(body) > LINE_LIMIT - _FRAME_BYTES:
        raise ValueError(f"a message of {len(body)} bytes: {message['kind']}")
    return body


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _CUT else f"{value[:_CUT]} … (cut)"
    if isinstance(value, dict):
        return {key: _cut(inner) for key, inner in value.items()}
    return [_cut(inner) for inner in value] if isinstance(value, (list, tuple)) else value
