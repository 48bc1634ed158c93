"""Running a command and keeping what it said."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import IO

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


def stream(argv: Sequence[str], env: Mapping[str, str] | None = None, umask: int = -1) -> None:
    """Run with all that it says going to our standard error, for commands whose progress people watch.

    ``umask`` takes the place of this process's.
    """
    whole = {**os.environ, **(env or {})}
    code = subprocess.run(list(argv), env=whole, stdout=sys.stderr, umask=umask, check=False).returncode
    if code:
        raise CommandFailed(argv, code)


def together(argvs: Sequence[Sequence[str]]) -> list[str | CommandFailed]:
    """Run commands side by side, each in a session of its own; of each what it said, or how it failed.

    When this process is asked to end (KeyboardInterrupt) they are killed; when it is killed they go on to their end.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")) for _ in argvs]
        children = []
        try:
            for argv, file in zip(argvs, files):
                child = subprocess.Popen(list(argv), stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
                children.append(stack.enter_context(child))
            return [_outcome(*each) for each in zip(argvs, children, files)]
        except KeyboardInterrupt:
            for child in children:
                child.kill()
            raise


def _outcome(argv: Sequence[str], child: subprocess.Popen[bytes], file: IO[str]) -> str | CommandFailed:
    code = child.wait()
    file.seek(0)
    said = file.read()
    return CommandFailed(argv, code, said) if code else said
