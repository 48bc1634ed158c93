"""Setup in every Ray worker: memory access for debuggers, debugger ports.

/proc/sys/kernel/yama/ptrace_scope is 1 by default on Ubuntu: only its parents, and a process that it allows, can read a
process (prctl(2), PR_SET_PTRACER). A worker allows the supervisor, whose py-spy shows where a training hangs, and with
VERLJOB_DEBUG every process of the account. Without Yama the call fails, which does no harm.
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


def _allow_tracing() -> None:
    supervisor = os.environ.get("VERLJOB_SUPERVISOR_PID", "")
    if not os.environ.get("VERLJOB_DEBUG") and not supervisor.isdigit():
        return
    tracer = _PR_SET_PTRACER_ANY if os.environ.get("VERLJOB_DEBUG") else ctypes.c_ulong(int(supervisor))
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, tracer, 0, 0, 0)


def free_port(host: str, block: str) -> int:
    """Return a free port of ``block`` (first-last), 0 if all are taken. The PID selects the first one to try."""
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


def _patch_debugpy(block: str) -> None:
    """Have debugpy listen on a port of the block, and print how VS Code attaches to it."""
    import debugpy

    listen = debugpy.listen

    def listen_in_block(endpoint: Any, **options: Any) -> Any:
        host, port = endpoint
        host, port = listen((host, port or free_port(host, block)), **options)
        connect = {"host": host, "port": port}
        attach = json.dumps({"name": f"verl on {host}", "type": "debugpy", "request": "attach", "connect": connect})
        print(f"debugger: process {os.getpid()} waits for VS Code, launch.json: {attach}", flush=True)  # noqa: T201
        return host, port

    debugpy.listen = listen_in_block


def _patch_rpdb(block: str) -> None:
    """Have each breakpoint of the old debugger listen on a free port of the block: several may wait at once."""
    from ray.util import rpdb

    listener = rpdb._RemotePdb

    def listen_in_block(*args: Any, port: int = 0, **options: Any) -> Any:
        return listener(*args, port=port or free_port("", block), **options)

    rpdb._RemotePdb = listen_in_block


def _prepare_debugger() -> None:
    block = os.environ.get("VERLJOB_DEBUG_PORTS", "")
    if not block:
        return
    if os.environ.get("RAY_DEBUG") == "legacy":
        _patch_rpdb(block)
    else:
        _patch_debugpy(block)


if "ray" in sys.modules:  # a worker, not a test that imports this module
    _allow_tracing()
    _prepare_debugger()
