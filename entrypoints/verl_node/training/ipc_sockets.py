"""Moves verl's sockets from /tmp to TMPDIR, in verl's processes, which import this module by external_modules.

Trainer and vLLM pass each other weights, in older releases calls, by sockets in /tmp whose names another job or account
can have too: verl 0.8 and 0.9 use rl-colocate-zmq-<Ray's job id>-replica-<n>-rank-<n>.sock, and Ray numbers the jobs of
each cluster from 1; 0.7 the UUID of the GPU; 0.6 the pid and the account's name (verl/workers/rollout/vllm_rollout/).
What arrives there is unpickled. Without a /tmp of its own a job would get the weights of another one, or run code of
whoever made the socket first; TMPDIR is the job's, and only its account can enter it.
"""

from __future__ import annotations

import os
import re
from typing import Any

_IN_TMP = re.compile(r"ipc:///tmp/(?P<name>[^/]+)")


def in_tmpdir(address: Any) -> Any:
    """Return the address with TMPDIR for a socket directly in /tmp; any other one is returned unchanged."""
    folder = os.environ.get("TMPDIR", "").rstrip("/")
    found = _IN_TMP.fullmatch(address) if isinstance(address, str) else None
    return f"ipc://{folder}/{found['name']}" if found and folder else address


def move(socket: Any) -> None:
    """Replace ``bind`` and ``connect`` of a class of sockets."""
    for name in ("bind", "connect"):
        _replace(socket, name)


def _replace(socket: Any, name: str) -> None:
    original = getattr(socket, name)

    def replaced(self: Any, addr: Any, *arguments: Any) -> Any:
        return original(self, in_tmpdir(addr), *arguments)

    setattr(socket, name, replaced)


try:
    import zmq
except ImportError:  # this verl has no such sockets
    pass
else:
    move(zmq.Socket)
