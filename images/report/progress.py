"""Progress display of builds on standard error: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from images.errors import ImageError

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import Task

    from images.report.build_log import BuildLog

WAITING = "waiting"


class Progress:
    """A display that prints nothing, and the base of the others; a context manager."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._width = max(map(len, names), default=0)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the display."""

    def line(self, name: str, line: str, log: BuildLog) -> None:
        """Show a line of a build's output, given the steps up to it."""

    def end(self, name: str, result: str) -> None:
        """Show the result of a build."""


class PlainLog(Progress):
    """The whole output of the engine, for one build."""

    def line(self, name: str, line: str, log: BuildLog) -> None:
        _write(line)

    def end(self, name: str, result: str) -> None:
        _write(result)


class StepLines(Progress):
    """One line per started step and per finished build, beginning with the image's name."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._shown: set[tuple[str, int]] = set()

    def line(self, name: str, line: str, log: BuildLog) -> None:
        step = log.current
        if step and step.index and (name, step.number) not in self._shown:
            self._shown.add((name, step.number))
            _write(f"{name:{self._width}}  {str(step)[:140]}")

    def end(self, name: str, result: str) -> None:
        for line in result.splitlines():
            _write(f"{name:{self._width}}  {line}")


class LiveTable(Progress):
    """A row per image in a terminal: its current step and the seconds of that step, then its result."""

    def __init__(self, names: Sequence[str], stream: TextIO | None = None) -> None:
        super().__init__(names)
        self.display = _rich_progress(stream or sys.stderr)
        self._rows = {name: self.display.add_task(WAITING, start=False, total=1, image=name) for name in names}
        self._steps, self._results = dict.fromkeys(names, WAITING), dict[str, str]()

    def __enter__(self) -> Progress:
        self.display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()
        _write("\n".join(self._results.values()))

    def line(self, name: str, line: str, log: BuildLog) -> None:
        if (step := str(log.current or WAITING)) != self._steps[name]:
            self._steps[name] = step
            self.display.reset(self._rows[name], description=step)  # begins the seconds again

    def end(self, name: str, result: str) -> None:
        self._results[name] = result
        self.display.update(self._rows[name], description=result.partition("\n")[0], completed=1)


def choose(kind: str, names: Sequence[str]) -> Progress:
    """Return the display of this kind.

    ``auto`` is ``live`` on a terminal, else ``plain``, which shows all output of one build, or the steps of several.
    """
    plain: type[Progress] = PlainLog if len(names) == 1 else StepLines
    auto = LiveTable if sys.stderr.isatty() else plain
    kinds: dict[str, type[Progress]] = {"auto": auto, "live": LiveTable, "plain": plain, "quiet": Progress}
    if kind not in kinds:
        raise ImageError(f"--progress={kind} is not a valid display: pass one of {', '.join(kinds)}.")
    return kinds[kind](names)


def _rich_progress(stream: TextIO) -> RichProgress:
    from rich.console import Console  # rich takes 0.1 s to import, and only a terminal needs it
    from rich.progress import Progress as Display
    from rich.progress import ProgressColumn, TextColumn
    from rich.text import Text

    class StepSeconds(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.finished or task.elapsed is None else f"{task.elapsed:.0f} s", justify="right")

    image, text = TextColumn("{task.fields[image]}"), TextColumn("{task.description}", markup=False)
    return Display(image, StepSeconds(), text, console=Console(file=stream), refresh_per_second=5)


def _write(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201  a display prints
