"""A head and a worker of the control channel, and a proxy between them that can change, lose or cut lines."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

from verl_node.control import client
from verl_node.control.messages import MetricsRow, WorkerEvent
from verl_node.control.peers import Peer
from verl_node.control.server import ControlServer
from verl_node.control.session import Session
from verl_node.reporting.events import Event
from verl_node.settings.identity import Identity
from verl_node.supervision.waiting import Deadline, until

TOKEN = b"0123456789abcdef"
Change = Callable[[bytes], "list[bytes]"]


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def identity(number: int = 1) -> Identity:
    texts = dict.fromkeys(("image_digest", "python", "ray", "verl", "verl_commit", "address"), "")
    return Identity(node_id=number, host=f"n{number}", gpus=8, cpus=32, **texts)


def event(message: str) -> WorkerEvent:
    return WorkerEvent(Event(1.5, "n1", "train", "note", message))


def row(step: Any) -> MetricsRow:
    return MetricsRow({"step": step})


class Head:
    """A listening head of ``nodes`` nodes, which records events and rows."""

    def __init__(self, silence_s: float = 5.0, token: bytes = TOKEN, nodes: int = 3) -> None:
        self.events: list[Event] = []
        self.rows: list[Any] = []
        hosts = [f"n{number}" for number in range(nodes)]
        self.server = ControlServer(hosts, nodes, token, self.events.append, silence_s)
        self.server.on_row = lambda row: self.rows.append(row["step"])
        self.port: int = free_port()

    async def __aenter__(self) -> Head:
        await self.server.listen(self.port)
        return self

    async def __aexit__(self, *error: object) -> None:
        for peer in self.server.workers.peers():
            await peer.session.close(0)
        for _ in range(5):  # asyncio never closes connections that it accepted just before the server closed
            await soon(lambda: not self.server._unauthenticated._connections)
            await asyncio.sleep(0.02)
        if self.server._server is not None:
            self.server._server.close()
        await asyncio.sleep(0.05)

    @classmethod
    async def listening_on(cls, port: int) -> None:
        """Listen on a port, and stop at once."""
        head = cls()
        head.port = port
        async with head:
            pass

    def peer(self, number: int = 1) -> Peer:
        return next(peer for peer in self.server.workers.peers() if peer.identity.node_id == number)

    def logged(self, text: str) -> list[str]:
        """Return the messages of events that contain ``text``."""
        return [event.message for event in self.events if text in event.message]


async def join(
    port: int, silence_s: float = 5.0, *, token: bytes = TOKEN, number: int = 1, timeout_s: float = 10.0
) -> Session:
    return await client.connect(
        "127.0.0.1",
        port,
        own_address="",
        token=token,
        identity=identity(number),
        deadline=Deadline(timeout_s),
        silence_s=silence_s,
    )


class Way:
    """A proxy to a port: forwards lines, and may change them, hold them back or cut connections."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.port = 0
        self.open = True
        self.connections = 0
        self.to_head: Change = lambda line: [line]
        self.to_worker: Change = lambda line: [line]
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Way:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.sleep(0.05)

    def cut(self) -> None:
        """Reset every connection, to both ends."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            head_reader, head_writer = await asyncio.open_connection("127.0.0.1", self.to, limit=1 << 22)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(head_writer)
        self._tasks.add(asyncio.ensure_future(self._pass(reader, head_writer, "to_head")))
        self._tasks.add(asyncio.ensure_future(self._pass(head_reader, writer, "to_worker")))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        try:
            while line := await reader.readline():
                await until(lambda: self.open, deadline=Deadline(60), poll_s=0.02)
                for changed in getattr(self, way)(line):
                    writer.write(changed)
                await writer.drain()
        except (OSError, ValueError):
            pass
        finally:
            writer.transport.abort()


async def soon(true: Callable[[], bool], timeout_s: float = 8.0) -> None:
    """Wait until a condition holds; fail at the deadline."""
    assert await until(true, deadline=Deadline(timeout_s), poll_s=0.01), f"still false after {timeout_s} s"


async def lead(port: int) -> None:
    """Run a head until killed."""
    head = Head(2.0)
    head.port = port
    async with head:
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(lead(int(sys.argv[1])))
