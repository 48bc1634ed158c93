"""Limits for connections that have not authenticated: their number, and one log line a minute."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable

from verl_node.control.channel import Channel

_EVERY_S = 60.0


class Strangers:
    """Who is connected and has not proved the token yet: at most ``most`` at once."""

    def __init__(self, most: int, note: Callable[[str, str], None]) -> None:
        self._most = most
        self._note = note
        self._here: set[Channel] = set()
        self._turned_away = 0
        self._last = ("", "")
        self._pause: asyncio.TimerHandle | None = None

    def enter(self, channel: Channel) -> None:
        """Count a new connection; where they are too many, drop one.

        That is any one of the address with the most: a worker, which proves itself within milliseconds, keeps its
        place beside a flood from elsewhere, and beside one from its own machine mostly, and else tries again.
        """
        self._here.add(channel)
        if len(self._here) <= self._most:
            return
        by_address = Counter(other.remote_address for other in self._here)
        most = max(by_address.values())
        dropped = secrets.choice([other for other in self._here if by_address[other.remote_address] == most])
        dropped.end = "too many connections at once"
        self._here.discard(dropped)
        dropped.drop()

    def leave(self, channel: Channel) -> None:
        """No longer count a connection, which has proved the token or was closed."""
        self._here.discard(channel)

    def turn_away(self, address: str, why: str) -> None:
        """Note that a connection was turned away, now or with the others of this minute."""
        self._turned_away += 1
        self._last = (address, why)
        if self._pause is None:
            self._say()

    def _say(self) -> None:
        self._pause = None
        if not self._turned_away:
            return
        others = f" (and {self._turned_away - 1} more in the last minute)" if self._turned_away > 1 else ""
        address, why = self._last
        self._turned_away = 0
        self._note(address, f"turned away: {why}{others}")
        self._pause = asyncio.get_running_loop().call_later(_EVERY_S, self._say)
