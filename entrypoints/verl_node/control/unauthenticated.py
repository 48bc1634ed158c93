"""Limits for connections that have not authenticated: their number, and one log line a minute."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable

from verl_node.control.channel import Channel

_LOG_PERIOD_S = 60.0


class UnauthenticatedConnections:
    """Connections that have not authenticated yet, at most ``limit`` at once, and the log of refused ones."""

    def __init__(self, limit: int, log: Callable[[str, str], None]) -> None:
        self._limit = limit
        self._log = log
        self._connections: set[Channel] = set()
        self._refused = 0
        self._last = ("", "")
        self._timer: asyncio.TimerHandle | None = None

    def add(self, channel: Channel) -> None:
        """Add a new connection; above the limit, abort a random one of the address with the most connections.

        A worker authenticates within milliseconds, so it survives a flood from other addresses. Under a flood from its
        own machine it mostly survives, and else retries.
        """
        self._connections.add(channel)
        if len(self._connections) <= self._limit:
            return
        by_address = Counter(other.remote_address for other in self._connections)
        most = max(by_address.values())
        victim = secrets.choice([other for other in self._connections if by_address[other.remote_address] == most])
        victim.end_reason = "too many connections at once"
        self._connections.discard(victim)
        victim.abort()

    def remove(self, channel: Channel) -> None:
        """Remove a connection that has authenticated or was closed."""
        self._connections.discard(channel)

    def log_refusal(self, address: str, why: str) -> None:
        """Log a refused connection, now or with the others of this minute."""
        self._refused += 1
        self._last = (address, why)
        if self._timer is None:
            self._write_log()

    def _write_log(self) -> None:
        self._timer = None
        if not self._refused:
            return
        others = f" (and {self._refused - 1} more in the last minute)" if self._refused > 1 else ""
        address, why = self._last
        self._refused = 0
        self._log(address, f"turned away: {why}{others}")
        self._timer = asyncio.get_running_loop().call_later(_LOG_PERIOD_S, self._write_log)
