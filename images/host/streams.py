"""Commands that several threads run at once, every line of what they say handed on as it comes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence

from images.errors import CommandFailed

KEPT_LINES = 40  # of what a command said, for the message of its failure


class Running:
    """What is under way, so that one place can end it all."""

    def __init__(self) -> None:
        self._children: set[subprocess.Popen[str]] = set()
        self._ended = False

    def watch(self, argv: Sequence[str], env: Mapping[str, str], each: Callable[[str], None], umask: int = -1) -> None:
        """Run with ``env`` added to this process's environment, hand each line to ``each``, and wait for the end.

        ``umask`` takes the place of this process's. Raises CommandFailed with the last lines.
        """
        said: list[str] = []
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
            if self._ended:
                child.terminate()
            try:
                for line in child.stdout or ():
                    said = [*said[1 - KEPT_LINES :], line.rstrip("\n")]
                    each(said[-1])
            except BaseException:  # also KeyboardInterrupt: what was started here does not outlive it
                child.terminate()
                raise
            finally:
                code = child.wait()
                self._children.discard(child)
        if code:
            raise CommandFailed(argv, code, "\n".join(said))

    def end(self) -> None:
        """Ask every command to end, also one that is just being started."""
        self._ended = True
        for child in list(self._children):
            child.terminate()
