"""Attacks of another account on a node of the job, without the token. Run as `channel_attacker.py ATTACK PORT`."""

from __future__ import annotations

import encodings.idna  # noqa: F401  the account nobody cannot read the interpreter's folder later
import os
import selectors
import socket
import sys
import time
from contextlib import suppress

NOBODY = 65534


def report(line: str) -> None:
    print(line, flush=True)  # noqa: T201  the test waits for it


def squat(port: int) -> None:
    """Listen on the port of another account's head."""
    listener = socket.create_server(("", port))
    report("listens")
    listener.accept()


def relay(port: int) -> None:
    """Act as the head for a worker that connects too early; forward everything to the head, but change orders."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        report("listens")
        worker, _ = listener.accept()
    report("has a worker and gives the port back")
    while True:
        try:
            head = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            time.sleep(0.01)
    selector = selectors.DefaultSelector()
    selector.register(worker, selectors.EVENT_READ, head)
    selector.register(head, selectors.EVENT_READ, worker)
    while True:
        for key, _ in selector.select():
            try:
                data = key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
            except ConnectionResetError:
                data = b""
            if not data:
                return
            if b'"prepare"' in data:
                data = data.replace(b"/bin/true", b"/bin/evil")
                report("changed an order")
            key.data.sendall(data)


def connecting(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(("127.0.0.1", port))
    return connection


def flood(port: int) -> None:
    """Open and close connections as fast as possible."""
    opened = 0
    while True:
        with suppress(OSError):
            connecting(port).close()
        opened += 1
        if opened == 100:
            report("floods")


def hold(port: int) -> None:
    """Keep hundreds of connections open, and replace each that the head closes."""
    selector = selectors.DefaultSelector()
    for _ in range(300):
        selector.register(connecting(port), selectors.EVENT_READ)
    report("holds")
    while True:
        for key, _ in selector.select():
            try:
                data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
            except OSError:
                data = b""
            if not data:
                selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
                selector.register(connecting(port), selectors.EVENT_READ)


if __name__ == "__main__":
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    {"squat": squat, "relay": relay, "flood": flood, "hold": hold}[sys.argv[1]](int(sys.argv[2]))
