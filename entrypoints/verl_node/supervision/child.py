"""Child processes: started in a session of their own, read line by line."""

from __future__ import annotations

import asyncio
import codecs
import ctypes
import json
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from verl_node.reporting import masking

_LINE_LIMIT = 1 << 20  # a longer line of training is cut, where that cuts no secret in two
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)


class Process:
    """A running child whose output arrives line by line."""

    started: ClassVar[set[int]] = set()

    def __init__(self, name: str, child: asyncio.subprocess.Process, on_line: Callable[[str], None]) -> None:
        self.name = name
        Process.started.add(child.pid)
        self.last_lines: deque[str] = deque(maxlen=20)
        self._child = child
        self._on_line = on_line
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def start(
        cls,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        on_line: Callable[[str], None],
        cwd: Path | None = None,
        waits: bool = False,
    ) -> Process:
        """Start a command; stdout and stderr come as one stream. Raises OSError.

        One that ``waits`` does so for its `order`; others have no input.
        """
        child = await asyncio.create_subprocess_exec(
            *argv,
            env=dict(env),
            cwd=cwd,
            stdin=asyncio.subprocess.PIPE if waits else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
            limit=_LINE_LIMIT,
        )
        return cls(name, child, on_line)

    def order(self, **order: Any) -> None:
        """Tell a process that waits what to do, in its one line of input; that it is gone already, its end tells."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(order).encode() + b"\n")
        self._child.stdin.close()

    async def ended(self) -> int:
        """Wait for the end; return its exit code, 128 + n where signal n killed it.

        The rest of the output is read for at most a second more, since a grandchild may keep the pipe open.
        """
        code = await self._child.wait()
        await asyncio.wait({self._reading}, timeout=1)
        return 128 - code if code < 0 else code

    @property
    def pid(self) -> int:
        """Its number, also when it has ended."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._child.returncode is None

    def kill(self) -> None:
        """Send KILL, if it has not ended yet."""
        if self.running:
            self._child.kill()

    async def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        kept = ""
        while data := await self._piece():
            text = kept + decoder.decode(data)
            text, kept = (text, "") if data.endswith(b"\n") else masking.split(text)
            if text:
                self._take(text)
        if kept:
            self._take(kept + decoder.decode(b"", True))

    def _take(self, text: str) -> None:
        line = text.rstrip("\r\n")
        self.last_lines.append(line)
        self._on_line(line)

    async def _piece(self) -> bytes:
        """Return the next line with its end, or as much of it as a line may have; empty at the end of the output."""
        assert self._child.stdout is not None
        try:
            return await self._child.stdout.readuntil(b"\n")
        except asyncio.LimitOverrunError as overrun:
            return await self._child.stdout.readexactly(min(overrun.consumed, _LINE_LIMIT))
        except asyncio.IncompleteReadError as end:
            return end.partial


def _die_with_parent() -> None:
    """Ask the kernel for a TERM when the supervisor dies, also by KILL; in a container the end of PID 1 does more."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
