"""Runs a deep check in a Python process with a time limit, and kills all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from verl_node.supervision import process_tree

_LOOK_S = 0.1


def run(
    words: Sequence[str],
    *,
    limit_s: float,
    stdout: IO[bytes],
    stderr: IO[bytes],
    environ: Mapping[str, str] | None = None,
    done: Callable[[], bool] = lambda: False,
) -> int | None:
    """Run ``python3 -m WORDS`` until it ends, is ``done`` or its time is over; its exit code, None where it was ended.

    ``environ`` comes on top of this process's own. Workers would outlive it and keep the GPUs' memory: they are killed
    with it.
    """
    deadline = time.monotonic() + limit_s
    with subprocess.Popen(
        [sys.executable, "-m", *words],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, **(environ or {})},
    ) as process:
        while process.poll() is None and not done() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        code = process.poll()
        _end(process)
    return code


def _end(process: subprocess.Popen[bytes]) -> None:
    while pids := [*process_tree.below(process.pid), *([process.pid] if process.poll() is None else [])]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)  # again: one may have been started between the look and the signal
