"""Progress display of builds on standard error: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from images.errors import ImageError

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from images.report.build_log import BuildLog

WAITING = "waiting"


class Progress:
    """Says nothing; the others say what they are told. ``with`` it, its display is up."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = list(names)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the display down."""

    def line(self, name: str, line: str, log: BuildLog) -> None:
        """A line that a build said, and what is known of its steps by then."""

    def end(self, name: str, verdict: str) -> None:
        """A build has ended, this way."""


class PlainLog(Progress):
    """All that the engine says, for one build."""

    def line(self, name: str, line: str, log: BuildLog) -> None:
        _write(line)

    def end(self, name: str, verdict: str) -> None:
        _write(verdict)


class StepLines(Progress):
    """One line for a step that begins and for a build that ends, with the image's name before it."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._width = max(map(len, names), default=0)
        self._told: set[tuple[str, int]] = set()

    def line(self, name: str, line: str, log: BuildLog) -> None:
        step = log.under_way
        if step and step.index and (name, step.number) not in self._told:
            self._told.add((name, step.number))
            _write(f"{name:{self._width}}  {str(step)[:140]}")

    def end(self, name: str, verdict: str) -> None:
        for line in verdict.splitlines():
            _write(f"{name:{self._width}}  {line}")


class LiveTable(Progress):
    """A row for each image: what it is at and since when."""

    def __init__(self, names: Sequence[str], stream: TextIO | None = None) -> None:
        super().__init__(names)
        self._stream = stream or sys.stderr
        self._at = {name: (WAITING, time.monotonic()) for name in names}
        self._over: dict[str, str] = {}
        self._lock = threading.Lock()
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        from rich.console import Console  # 0.1 s that only a terminal needs
        from rich.live import Live

        self._live = Live(console=Console(file=self._stream), get_renderable=self.table, refresh_per_second=5)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
        _write("\n".join(self._over.values()))

    def line(self, name: str, line: str, log: BuildLog) -> None:
        told = str(log.under_way or WAITING)
        with self._lock:
            if self._at[name][0] != told:
                self._at[name] = (told, time.monotonic())

    def end(self, name: str, verdict: str) -> None:
        with self._lock:
            self._over[name] = verdict

    def table(self) -> Table:
        """The table as it stands."""
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")
        with self._lock:
            for name, (told, since) in self._at.items():
                over = self._over.get(name, "").partition("\n")[0]
                spent = "" if over or told == WAITING else f"{time.monotonic() - since:.0f} s"
                table.add_row(Text(name), spent, Text(over or told))  # Text: a step's [stage 1/2] is no markup
        return table


def choose(asked: str, names: Sequence[str]) -> Progress:
    """The display of this name; ``auto`` moves on a terminal, ``plain`` tells all of one build or steps of several."""
    plain: type[Progress] = PlainLog if len(names) == 1 else StepLines
    auto = LiveTable if sys.stderr.isatty() else plain
    kinds: dict[str, type[Progress]] = {"auto": auto, "live": LiveTable, "plain": plain, "quiet": Progress}
    if asked not in kinds:
        raise ImageError(f"--progress={asked} is not known; there are {', '.join(kinds)}.")
    return kinds[asked](names)


def _write(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201  a display is there to print
