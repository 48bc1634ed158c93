"""Setup in every Ray worker: memory access for debuggers, debugger ports.

/proc/sys/kernel/yama/ptrace_scope is 1 by default on Ubuntu: a process is read by its parents alone, or by whom it
names (prctl(2), PR_SET_PTRACER). It names the supervisor, whose py-spy shows where a training hangs, and with
VERLJOB_DEBUG every process of the account. Without Yama the call fails, which changes nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from typing import Any

_PR_SET_PTRACER = 0x59616D61  # linux/prctl.h
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)


def _name_who_may_trace() -> None:
    supervisor = os.environ.get("VERLJOB_SUPERVISOR_PID", "")
    if not os.environ.get("VERLJOB_DEBUG") and not supervisor.isdigit():
        return
    tracer = _PR_SET_PTRACER_ANY if os.environ.get("VERLJOB_DEBUG") else ctypes.c_ulong(int(supervisor))
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, tracer, 0, 0, 0)


def free_port(host: str, block: str) -> int:
    """Return a port of ``block`` (first-last) that nobody listens on, 0 where there is none.

    Processes of a node begin at different ones: each looks at first where its own number leads.
    """
    first, last = map(int, block.split("-"))
    for step in range(last - first + 1):
        port = first + (os.getpid() + step) % (last - first + 1)
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    return 0


def _listen_in_the_block(block: str) -> None:
    """Have debugpy listen on a port of the job's, and say how VS Code attaches to it."""
    import debugpy

    listen = debugpy.listen

    def within(endpoint: Any, **more: Any) -> Any:
        host, asked = endpoint
        host, port = listen((host, asked or free_port(host, block)), **more)
        connect = {"host": host, "port": port}
        attach = json.dumps({"name": f"verl on {host}", "type": "debugpy", "request": "attach", "connect": connect})
        print(f"debugger: process {os.getpid()} waits for VS Code, launch.json: {attach}", flush=True)  # noqa: T201
        return host, port

    debugpy.listen = within


def _break_in_the_block(block: str) -> None:
    """Have a breakpoint of the old debugger listen on a port of the job's that is free then: many may wait at once."""
    from ray.util import rpdb

    listener = rpdb._RemotePdb

    def within(*args: Any, port: int = 0, **more: Any) -> Any:
        return listener(*args, port=port or free_port("", block), **more)

    rpdb._RemotePdb = within


def _prepare_debugger() -> None:
    block = os.environ.get("VERLJOB_DEBUG_PORTS", "")
    if not block:
        return
    if os.environ.get("RAY_DEBUG") == "legacy":
        _break_in_the_block(block)
    else:
        _listen_in_the_block(block)


if "ray" in sys.modules:  # a worker, not a test that imports this module
    _name_who_may_trace()
    _prepare_debugger()
