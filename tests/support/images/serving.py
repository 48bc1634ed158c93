"""Runs a server of the standard library in a thread."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

S = TypeVar("S", bound=socketserver.BaseServer)


@contextmanager
def serving(server: S, poll_s: float = 0.01) -> Iterator[S]:
    """Serve in a thread, and close the server in the end, within ``poll_s``."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": poll_s})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
