"""Events of a node: to its output, to events.jsonl, and to the head."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verl_node.errors import NodeError
from verl_node.reporting import files
from verl_node.reporting.control_characters import printable
from verl_node.reporting.masking import masked

Event = dict[str, Any]
Sink = Callable[[Event], None]


class Journal:
    """One node's phases and messages.

    Every event goes to standard output as a line. On the head it also goes to events.jsonl, on a worker to the head,
    once there is a ``sink``; what was said before that is kept and handed over then.
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
        """Note the begin and end of a phase; a phase that comes twice adds up. Errors pass, and are noted."""
        self.phase = phase
        began = time.monotonic()
        self._record("begin", message)
        try:
            yield
        except NodeError as error:
            self._record("error", str(error), self._spent(phase, began))
            raise
        except asyncio.CancelledError:  # by a watcher, whose error will be told
            self._spent(phase, began)
            raise
        self._record("end", "", self._spent(phase, began))

    def beside(self, phase: str, kind: str, message: str = "", seconds: float | None = None) -> None:
        """Note something of a phase that goes on beside the current one; its seconds count from their first mention."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + (seconds or 0.0)
        self._record(kind, message, seconds, phase)

    def note(self, message: str) -> None:
        """Note one sentence."""
        self._record("note", message)

    def relay(self, phase: str, kind: str, message: str, seconds: float | None) -> None:
        """Note what a process of this node reports of a phase that it works through for us."""
        self.phase = phase
        if seconds is not None:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
        self._record(kind, message, seconds)

    def hand_over_to(self, sink: Sink) -> None:
        """Give every event, past ones first, to ``sink`` as well."""
        self._sink = sink
        for event in self._unsent:
            sink(event)
        self._unsent.clear()

    def take(self, event: Event) -> None:
        """Take in an event of another node (on the head): say it and keep it."""
        self._say(event)
        self._keep(event)

    def _record(self, kind: str, message: str, seconds: float | None = None, phase: str = "") -> None:
        event: Event = {"time": round(time.time(), 3), "host": self.host, "phase": phase or self.phase, "event": kind}
        if seconds is not None:
            event["seconds"] = round(seconds, 3)
        event["message"] = message
        self._say(event)
        self._keep(event)

    def _keep(self, event: Event) -> None:
        if self._sink is None:
            self._unsent.append(event)
        else:
            self._sink(event)

    def _say(self, event: Event) -> None:
        seconds = f" after {event['seconds']:.1f} s" if "seconds" in event else ""
        what = (
            event["message"] if event["event"] == "note" else f"{event['event']}{seconds} {event['message']}".rstrip()
        )
        line = f"[{time.monotonic() - self._start:7.1f} s] {event['host']} {event['phase']}: {what}"
        print(printable(line), flush=True)  # noqa: T201

    def _spent(self, phase: str, began: float) -> float:
        spent = time.monotonic() - began
        self.seconds[phase] = self.seconds.get(phase, 0.0) + spent
        return spent


def to_file(path: Path) -> Sink:
    """Return a sink that appends each event, masked, to a JSON-lines file; a full disk costs events, not the job."""

    def append(event: Event) -> None:
        try:
            with files.appending(path) as file:
                file.write(masked(json.dumps(event)) + "\n")  # one write, so lines stay whole
        except OSError as error:
            print(f"{path} could not be written: {error}", flush=True)  # noqa: T201

    return append
