"""Runs a deep check in a Python process with a time limit, and kills all its descendants."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from verl_node.supervision import process_tree

_POLL_S = 0.1
_END_S = 5.0  # after KILL; one that waits for a device may end later


def run(
    module_argv: Sequence[str],
    *,
    limit_s: float,
    stdout: IO[bytes],
    stderr: IO[bytes],
    environ: Mapping[str, str] | None = None,
    done: Callable[[], bool] = lambda: False,
) -> int | None:
    """Run ``python3 -m MODULE_ARGV`` until it ends, is ``done`` or reaches its limit.

    Return its exit code, None if it was killed. ``environ`` extends this process's environment. Descendants are killed
    too: they would outlive it and keep the GPUs' memory.
    """
    deadline = time.monotonic() + limit_s
    with subprocess.Popen(
        [sys.executable, "-m", *module_argv],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, **(environ or {})},
    ) as process:
        while process.poll() is None and not done() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        code = process.poll()
        _kill_tree(process)
    return code


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with its descendants, and wait until they have ended, for _END_S at most.

    They are stopped first: a stopped process starts no other one, which would no longer be below it after its end.
    """
    if process.poll() is not None:
        return
    tree: list[int] = []
    while new := [pid for pid in (process.pid, *process_tree.below(process.pid)) if pid not in tree]:
        process_tree.send(new, signal.SIGSTOP)
        tree += new
    process_tree.send(tree, signal.SIGKILL)
    deadline = time.monotonic() + _END_S
    while process_tree.living(tree) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
