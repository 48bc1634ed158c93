"""Handler of the signals that end this node."""

from __future__ import annotations

import asyncio
import signal

from verl_node.errors import EndedFromOutside

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """Handles the signals that end a node; the first one counts."""

    def __init__(self) -> None:
        self._received = asyncio.Event()
        self._name = ""
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, self._handle, number)

    def _handle(self, number: signal.Signals) -> None:
        self._name = self._name or number.name
        self._received.set()

    async def watch(self) -> None:
        """Wait for a signal. Raises EndedFromOutside."""
        await self._received.wait()
        raise EndedFromOutside(
            f"Ended from outside by {self._name}.",
            fix="Look for scancel, the time limit (sacct -j), or another node's verdict.",
        )
