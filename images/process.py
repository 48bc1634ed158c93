"""Running a command and keeping what it said."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from images.errors import CommandFailed


def run(argv: Sequence[str], env: Mapping[str, str] | None = None, timeout_s: float | None = None) -> str:
    """Run quietly and return standard output; CommandFailed carries standard error.

    ``env`` is added to this process's environment. A command that exceeds ``timeout_s`` counts as ended with 124.
    """
    try:
        whole = {**os.environ, **(env or {})}
        done = subprocess.run(list(argv), env=whole, capture_output=True, text=True, timeout=timeout_s, check=False)
    except FileNotFoundError as missing:
        raise CommandFailed(argv, 127, str(missing)) from missing
    except subprocess.TimeoutExpired as late:
        raise CommandFailed(argv, 124, f"no end after {timeout_s:g} s") from late
    if done.returncode:
        raise CommandFailed(argv, done.returncode, done.stderr or done.stdout)
    return done.stdout
