"""A proxy to a registry that kills a push at a chosen point of its requests."""

from __future__ import annotations

import http.client
import http.server
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from images.engine.client import Engine
from images.engine.daemon import local
from images.registry import push
from tests.support.images.serving import serving

QUIET_S = 0.1
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["images.registry.push"])  # so that forks need no imports


def _nothing() -> None:
    """Kill nothing."""


class Points:
    """Counts the points of all proxies: each request when it arrives, and each answer before it is forwarded."""

    def __init__(self) -> None:
        self.passed = itertools.count()
        self.at, self.act = -1, _nothing
        self.waiting, self.last, self.lock = 0, 0.0, threading.Lock()

    def set(self, at: int, act: Callable[[], None]) -> None:
        """Restart the count, and call ``act`` at point ``at``."""
        self.passed, self.at, self.act = itertools.count(), at, act

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count a request as unanswered."""
        with self.lock:
            self.waiting += 1
        try:
            yield
        finally:
            with self.lock:
                self.waiting, self.last = self.waiting - 1, time.monotonic()

    def settle(self) -> None:
        """Wait until all requests are answered, since the registry may still be writing a tag or a blob.

        A request may have been sent and not been read yet, so no request may arrive for QUIET_S.
        """
        end = time.monotonic() + 30
        while True:
            time.sleep(QUIET_S)
            with self.lock:
                if self.waiting == 0 and time.monotonic() - self.last >= QUIET_S:
                    return
            assert time.monotonic() < end

    def come(self) -> None:
        if next(self.passed) == self.at:
            self.act()


class Way(http.server.ThreadingHTTPServer):
    """The proxy to a registry."""

    daemon_threads = True

    def __init__(self, registry: str, points: Points) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.registry, self.points = registry, points

    def handle_error(self, *_: object) -> None:
        """Ignore errors: the client was killed."""


@contextmanager
def way(registry: str, points: Points) -> Iterator[str]:
    """Run a proxy to a registry; yields its address."""
    with serving(Way(registry, points)) as server:
        yield f"127.0.0.1:{server.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Way
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def pass_on(self) -> None:
        with self.server.points.under_way():
            self.pass_over(self.body())

    def pass_over(self, body: bytes) -> None:
        self.server.points.come()
        registry = http.client.HTTPConnection(self.server.registry, timeout=30)
        kept = {name: value for name, value in self.headers.items() if name.lower() != "transfer-encoding"}
        registry.request(self.command, self.path, body, {**kept, "Content-Length": str(len(body))})
        answer = registry.getresponse()
        content = answer.read()
        self.server.points.come()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        registry.close()

    do_GET = do_HEAD = do_POST = do_PATCH = do_PUT = pass_on  # noqa: N815  as http.server calls them


def _push(engine: Engine, reference: str, repositories: list[str], tags: list[str], notes: Path) -> None:
    os.setpgid(0, 0)
    setattr(push, "choose", lambda: engine)  # noqa: B010  running every client on PATH a hundred times takes a minute
    pushing = push.Push(local(reference), "1-killed", repositories, tags)
    uploaded = pushing.upload()
    pushing.tag(uploaded)
    pushing.write_digest_files(uploaded, notes)


def prepared(engine: Engine, reference: str, repositories: list[str], tags: list[str], notes: Path) -> BaseProcess:
    """Return a process that pushes like `invoke push`, in its own process group."""
    return FORKS.Process(target=_push, args=(engine, reference, repositories, tags, notes))


def kill(process: BaseProcess) -> None:
    """Kill the whole group."""
    assert process.pid
    os.killpg(process.pid, signal.SIGKILL)
