"""Events of a node: to its output, to events.jsonl, and to the head."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from verl_node.errors import NodeError
from verl_node.reporting import files
from verl_node.reporting.control_characters import printable
from verl_node.reporting.masking import masked


@dataclass(frozen=True)
class Event:
    """A line of events.jsonl: epoch seconds, host, phase, ``begin``, ``end``, ``note`` or ``error``."""

    time: float
    host: str
    phase: str
    event: str
    message: str = ""
    seconds: float | None = None

    @classmethod
    def now(cls, host: str, phase: str, event: str, message: str = "", seconds: float | None = None) -> Event:
        """Return an event of this moment."""
        return cls(round(time.time(), 3), host, phase, event, message, None if seconds is None else round(seconds, 3))


Sink = Callable[[Event], None]


class Journal:
    """Phases and messages of one node: printed, and passed to a sink (events.jsonl on the head, the head on a worker).

    Events from before there is a sink are kept for it.
    """

    def __init__(self, host: str) -> None:
        self.host = host
        self.phase = "checks"
        self.seconds: dict[str, float] = {}
        self._sink: Sink | None = None
        self._unsent: list[Event] = []
        self._start = time.monotonic()

    @contextmanager
    def during(self, phase: str, message: str = "") -> Iterator[None]:
        """Record begin and end of a phase, and an error that passes through. Times of a repeated phase add up."""
        self.phase = phase
        began = time.monotonic()
        self._record("begin", message)
        try:
            yield
        except NodeError as error:
            self._record("error", str(error), self._add_seconds(phase, time.monotonic() - began))
            raise
        except asyncio.CancelledError:  # by a watcher, whose error is recorded
            self._add_seconds(phase, time.monotonic() - began)
            raise
        self._record("end", "", self._add_seconds(phase, time.monotonic() - began))

    def beside(self, phase: str, kind: str, message: str = "", seconds: float | None = None) -> None:
        """Record an event of a phase that runs in parallel to the current one."""
        self._add_seconds(phase, seconds or 0.0)
        self._record(kind, message, seconds, phase)

    def note(self, message: str) -> None:
        """Record a message."""
        self._record("note", message)

    def relay(self, phase: str, kind: str, message: str, seconds: float | None) -> None:
        """Record an event that a child process reports, and make its phase the current one."""
        self.phase = phase
        if seconds is not None:
            self._add_seconds(phase, seconds)
        self._record(kind, message, seconds)

    def set_sink(self, sink: Sink) -> None:
        """Pass every event to ``sink``, past ones first."""
        self._sink = sink
        for event in self._unsent:
            sink(event)
        self._unsent.clear()

    def add(self, event: Event) -> None:
        """Print an event, which may be of another node, and pass it to the sink."""
        self._print(event)
        if self._sink is None:
            self._unsent.append(event)
        else:
            self._sink(event)

    def _record(self, kind: str, message: str, seconds: float | None = None, phase: str = "") -> None:
        self.add(Event.now(self.host, phase or self.phase, kind, message, seconds))

    def _print(self, event: Event) -> None:
        seconds = "" if event.seconds is None else f" after {event.seconds:.1f} s"
        text = event.message if event.event == "note" else f"{event.event}{seconds} {event.message}".rstrip()
        line = f"[{time.monotonic() - self._start:7.1f} s] {event.host} {event.phase}: {text}"
        print(printable(line), flush=True)  # noqa: T201

    def _add_seconds(self, phase: str, seconds: float) -> float:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
        return seconds


def to_file(path: Path) -> Sink:
    """Return a sink that appends each event, masked, to a JSON-lines file; a full disk costs events, not the job."""

    def append(event: Event) -> None:
        fields = {name: value for name, value in vars(event).items() if value is not None}
        try:
            with files.appending(path) as file:
                file.write(masked(json.dumps(fields)) + "\n")  # one write, so lines stay whole
        except OSError as error:
            print(f"{path} could not be written: {error}", flush=True)  # noqa: T201

    return append
