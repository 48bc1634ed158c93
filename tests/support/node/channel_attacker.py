"""Another account of a node of the job, which does not know the token. Run as `channel_attacker.py WHAT PORT`."""

from __future__ import annotations

import encodings.idna  # noqa: F401  an account that is nobody may not read the interpreter's folder later
import os
import selectors
import socket
import sys
import time
from contextlib import suppress

NOBODY = 65534


def say(words: str) -> None:
    print(words, flush=True)  # noqa: T201  the test waits for it


def squat(port: int) -> None:
    """Listen on the port of another account's head."""
    listener = socket.create_server(("", port))
    say("listens")
    listener.accept()


def relay(port: int) -> None:
    """Be the head for a worker that comes too early, and pass all on to the head, but for orders, which are changed."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        say("listens")
        worker, _ = listener.accept()
    say("has a worker and gives the port back")
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
                say("changed an order")
            key.data.sendall(data)


def connecting(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(("127.0.0.1", port))
    return connection


def flood(port: int) -> None:
    """Open connections as fast as can be, and close them as fast."""
    opened = 0
    while True:
        with suppress(OSError):
            connecting(port).close()
        opened += 1
        if opened == 100:
            say("floods")


def hold(port: int) -> None:
    """Hold hundreds of connections, and open another for each that the head closes."""
    selector = selectors.DefaultSelector()
    for _ in range(300):
        selector.register(connecting(port), selectors.EVENT_READ)
    say("holds")
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
