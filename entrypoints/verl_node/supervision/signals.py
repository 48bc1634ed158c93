"""Signals that end this node."""

from __future__ import annotations

import asyncio
import signal

from verl_node.errors import EndedFromOutside

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """Catches the signals that end a node from now on; further ones change nothing."""

    def __init__(self) -> None:
        self._came = asyncio.Event()
        self._name = ""
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, self._take, number)

    def _take(self, number: signal.Signals) -> None:
        self._name = self._name or number.name
        self._came.set()

    async def watch(self) -> None:
        """Wait for one. Raises EndedFromOutside."""
        await self._came.wait()
        raise EndedFromOutside(
            f"Ended from outside by {self._name}.",
            fix="Look for scancel, the time limit (sacct -j), or another node's verdict.",
        )
