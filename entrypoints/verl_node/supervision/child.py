"""Child processes: each in its own session, its output read line by line."""

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

_LINE_LIMIT = 1 << 20  # a longer line is cut, at a place that is not inside a secret
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)


class Process:
    """A running child whose output arrives line by line."""

    started: ClassVar[set[int]] = set()

    def __init__(self, child: asyncio.subprocess.Process, on_line: Callable[[str], None]) -> None:
        Process.started.add(child.pid)
        self.last_lines: deque[str] = deque(maxlen=20)
        self._child = child
        self._on_line = on_line
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        on_line: Callable[[str], None],
        cwd: Path | None = None,
        waits: bool = False,
    ) -> Process:
        """Start a command; stdout and stderr are one stream. Raises OSError.

        A process that ``waits`` reads one line, `send_order`; others have no input.
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
        return cls(child, on_line)

    def send_order(self, **order: Any) -> None:
        """Send a line of JSON to a process that waits. If it has ended already, only `ended` reports that."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(order).encode() + b"\n")
        self._child.stdin.close()

    async def ended(self) -> int:
        """Wait for the end; return the exit code, 128 + n if signal n killed it.

        The rest of the output is read for at most a second, since a grandchild may keep the pipe open.
        """
        code = await self._child.wait()
        await asyncio.wait({self._reading}, timeout=1)
        return 128 - code if code < 0 else code

    @property
    def pid(self) -> int:
        """The PID, also after the end."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._child.returncode is None

    def kill(self) -> None:
        """Send KILL unless it has ended."""
        if self.running:
            self._child.kill()

    async def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        rest = ""
        while data := await self._piece():
            text = rest + decoder.decode(data)
            text, rest = (text, "") if data.endswith(b"\n") else masking.split(text)
            if text:
                self._handle(text)
        if rest:
            self._handle(rest + decoder.decode(b"", True))

    def _handle(self, text: str) -> None:
        line = text.rstrip("\r\n")
        self.last_lines.append(line)
        self._on_line(line)

    async def _piece(self) -> bytes:
        """Return the next line with its end, or its first _LINE_LIMIT bytes; empty at the end of the output."""
        assert self._child.stdout is not None
        try:
            return await self._child.stdout.readuntil(b"\n")
        except asyncio.LimitOverrunError as overrun:
            return await self._child.stdout.readexactly(min(overrun.consumed, _LINE_LIMIT))
        except asyncio.IncompleteReadError as end:
            return end.partial


def _die_with_parent() -> None:
    """Have the kernel send TERM when the supervisor dies, also by KILL; in a container the end of PID 1 does more."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
