"""Sends invalid lines to a head, without and with the token, and prints the head's state afterwards as JSON.

Run as a script, with any Python that nodes support.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import socket
import sys
from contextlib import suppress
from typing import Any

from verl_node.control import messages
from verl_node.control.authentication import authenticate
from verl_node.control.channel import UNAUTHENTICATED_LIMIT, Channel
from verl_node.control.messages import PROTOCOL, Step
from verl_node.supervision import heartbeat

from tests.support.node.channel_rig import TOKEN, Head, identity, join, row, soon

VALUES: list[Any] = [
    *(None, True, False, 0, -1, 10**400, 1e308, "", "x", "a" * 63, "a" * 64, "A" * 64, "a" * 65, "é" * 64, "\ud800"),
    *("\x00" * 64, " " * 64, "0x" + "f" * 62, "a" * 64 + "\n", [], [[]], ["a" * 64], {}, {"challenge": "a" * 64}),
    *(float("nan"), float("inf"), "a" * 3000),
]
LONG = b"x" * (2 << 20)
KINDS = [*messages.KINDS, "beat", "end", "", "kind"]


def lines() -> list[bytes]:
    """Return first lines of an unauthenticated peer, most with their end of line."""
    protocols = [
        *(f"{verb} / HTTP/1.1\r\nHost: n1\r\n\r\n".encode() for verb in ("GET", "POST", "CONNECT", "OPTIONS", "PUT")),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        bytes.fromhex("16030100c8010000c40303") + bytes(range(200)),  # TLS: a client's hello
        bytes.fromhex("16030100c8010000c40303") + b"\n",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        bytes.fromhex("030000130ee000000000000100080003000000"),  # RDP
        *(b"*1\r\n$4\r\nPING\r\n", b"EHLO n1\r\n", b"stats\r\n", b"\x00\x01\x00\x00Cookie: \n"),
    ]
    sizes = [b"x" * size for size in (1, 4095, 4096, 4097, 8192, 8193, 65536, 1 << 20, 2 << 20)]
    deep = [open_ * depth for open_ in (b"[", b'{"a":') for depth in (10, 700, 1000, 100_000)]
    blank = [b"", b" ", b"\r", b"\x00", b"\x00" * 4000, b"\n" * 1000, b"\xff\xfe", b"\xef\xbb\xbf{}", b"\t{}"]
    numbers = [b"9" * 900_000, b'{"kind": ' + b"9" * 4000 + b"}", b"1e999", b"-0", b"NaN", b"-Infinity", b"0x1"]
    texts = [
        *("null", "true", "1", '"x"', "[]", "[[]]", "{}", "{", '{"kind"}', '{"kind": }', "'kind'", "{'kind': 1}"),
        *('"\\ud800"', '{"\\ud800": 1}', '{"kind": "\\ud800"}', '{"kind": "\\u0000"}', '{"kind": "answer"', "[1, 2"),
        '{"kind": "answer", "kind": "hello"}',
    ]
    raw = [b"\xc3\x28", b"\xed\xa0\x80", b"\x80", '{"kind": "é"}'.encode("latin-1"), '{"kind": "a"}'.encode("utf-16")]
    bare = [*sizes, *deep, *blank, *numbers, *(text.encode() for text in texts), *raw]
    shaped = [
        *({"kind": kind} for kind in KINDS),
        *({"kind": value} for value in VALUES),
        *({"kind": "answer", "challenge": value, "answer": "a" * 64} for value in VALUES),
        *({"kind": "answer", "challenge": "a" * 64, "answer": value} for value in VALUES),
        *({"kind": "answer", "challenge": "a" * 64, "answer": value, "session": value} for value in VALUES),
    ]
    encoded = [json.dumps(message).encode() for message in shaped]
    framed = [*(b"%s %s\n" % (mac, body) for mac, body in itertools.product((b"", b"0" * 64), (*bare[-20:], *encoded)))]
    return [*protocols, *bare, *(body + b"\n" for body in bare), *framed]


def greetings() -> list[Any]:
    """Return messages of an authenticated peer in place of a hello."""
    node = vars(identity(2))
    wrong: list[Any] = [None, True, 1.5, [], {}, "x"]
    fits = {"node_id": int, "gpus": int, "cpus": int}
    identities = [
        *({**node, name: value} for name in node for value in wrong if type(value) is not fits.get(name, str)),
        *({key: value for key, value in node.items() if key != name} for name in ("node_id", "host", "gpus", "ray")),
        *({**node, "node_id": number} for number in (-1, 0, 1, 3, 10**30)),
        {**node, "colour": "x"},
        *wrong,
    ]
    return [
        *({"kind": "hello", "protocol": PROTOCOL, "identity": identity} for identity in identities),
        *({"kind": "hello", "protocol": version, "identity": node} for version in (*wrong, PROTOCOL - 1, PROTOCOL + 1)),
        {"kind": "hello", "protocol": PROTOCOL, "identity": node, "colour": "x"},
        {"kind": "hello", **node},  # of version 2
        *({"kind": kind} for kind in KINDS),
        *({"kind": value} for value in wrong),
        *({"kind": "resume", "node_id": value, "attempt": 1, "session": "x", "received": 0} for value in wrong),
    ]


async def send(port: int, data: bytes) -> bytes:
    """Send data without authentication; return the answer until the head closed the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(data)
        await writer.drain()
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        pass  # reset: the head did not read all of it
    writer.transport.abort()
    return answer


async def send_long(port: int) -> None:
    """Send LONG, which has no end of line, without copying it."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setblocking(False)
        with suppress(OSError):  # the head closes the connection
            await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(connection, LONG), 10)


async def send_authenticated(port: int, message: Any) -> Any:
    """Authenticate, send a message, and return the answer."""
    channel = Channel(*await asyncio.open_connection("127.0.0.1", port, limit=UNAUTHENTICATED_LIMIT), 60)
    await authenticate(channel, TOKEN, head=False)
    channel.send(json.dumps(message).encode())
    answer = await asyncio.wait_for(channel.receive(), 10)
    channel.abort()
    return answer


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def run() -> dict[str, Any]:
    """Send everything to a head with one worker; return counts before and after."""
    loop = asyncio.get_running_loop()
    mistakes: list[Any] = []
    loop.set_exception_handler(lambda _, context: mistakes.append(str(context)))
    async with Head(60.0) as head:
        session = await join(head.port, 60.0)
        before, memory = descriptors(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answered = []
        for number, part in ((1, lines()), (2, [])):
            for data in part:
                reply = await send(head.port, data)
                if b"welcome" in reply or reply.count(b'"answer"'):
                    answered.append(repr(data[:80]))
            session.send(row(number))
            head.server.broadcast(Step(number))
        for message in greetings():
            answer = await send_authenticated(head.port, message)
            if answer is None or answer["kind"] != "refused":
                answered.append(repr(message))
        # A hundred at once with 2 MB each and no end of line: the head keeps none of it.
        await asyncio.gather(*(send_long(head.port) for _ in range(100)))
        orders = [await session.receive() for _ in range(2)]
        await soon(lambda: len(head.rows) == 2)
        await soon(lambda: descriptors() == before)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
        seen = {
            "lines": len(lines()),
            "proved": len(greetings()),
            "descriptors": [before, descriptors()],
            "beats": len(heartbeat._beats) - 1,  # without that of the worker's session
            "orders": [order.step for order in orders if isinstance(order, Step)],
            "rows": head.rows,
            "notes": len(head.logged("turned away")),
            "grown_mib": grown / 1024,
            "answered": [*answered, *mistakes],
        }
        await session.close()
    return seen


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run())))  # noqa: T201
    sys.stdout.flush()
