"""Runs commands: quietly, with their output shown, in parallel, or line by line from several threads."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import IO

from images.errors import CommandFailed

KEPT_LINES = 40  # of a command's output, for the message of its failure


def run(argv: Sequence[str], env: Mapping[str, str] | None = None, timeout_s: float | None = None) -> str:
    """Run quietly and return standard output; CommandFailed carries standard error.

    ``env`` is added to this process's environment. A command that exceeds ``timeout_s`` fails with code 124.
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


def stream(argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
    """Run with all output on our standard error, for commands whose progress people watch."""
    code = subprocess.run(list(argv), env={**os.environ, **(env or {})}, stdout=sys.stderr, check=False).returncode
    if code:
        raise CommandFailed(argv, code)


def run_parallel(argvs: Sequence[Sequence[str]]) -> list[str | CommandFailed]:
    """Run commands in parallel, each in its own session; return the output or the failure of each.

    KeyboardInterrupt kills them. If this process is killed, they run to their end.
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
    output = file.read()
    return CommandFailed(argv, code, output) if code else output


class Commands:
    """Running commands, terminated together by one call."""

    def __init__(self) -> None:
        self._children: set[subprocess.Popen[str]] = set()
        self._terminated = False

    def watch(
        self, argv: Sequence[str], env: Mapping[str, str], on_line: Callable[[str], None], umask: int = -1
    ) -> None:
        """Run with ``env`` added to this process's environment, and pass each line of output to ``on_line``.

        ``umask`` replaces the umask of this process. Raises CommandFailed with the last lines.
        """
        output: list[str] = []
        with subprocess.Popen(
            list(argv),
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            umask=umask,
        ) as child:
            self._children.add(child)
            if self._terminated:
                child.terminate()
            try:
                for line in child.stdout or ():
                    output = [*output[1 - KEPT_LINES :], line.rstrip("\n")]
                    on_line(output[-1])
            except BaseException:  # also KeyboardInterrupt: the child must not outlive this call
                child.terminate()
                raise
            finally:
                code = child.wait()
                self._children.discard(child)
        if code:
            raise CommandFailed(argv, code, "\n".join(output))

    def terminate(self) -> None:
        """Terminate every command, also one that is being started."""
        self._terminated = True
        for child in list(self._children):
            child.terminate()
