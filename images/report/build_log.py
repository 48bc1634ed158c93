"""Parses an engine's build output, line by line: steps, times, cache hits.

With ``--progress plain`` docker 20.10 and buildx write the same lines, except for digests that only docker 20.10 adds:
``#5 [stage-1 2/4] RUN …`` begins step 5, ``#5 DONE 1.2s`` or ``#5 CACHED`` ends it. buildah 1.28 writes
``STEP 2/9: RUN …``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from images.context.dockerfile import STEPS, parse, steps

STEP = re.compile(r"#(\d+) \[(?:(\S.*?) +| *)(\d+)/(\d+)\] (.+)")  # the index is padded from 10 steps on
INTERNAL = re.compile(r"#(\d+) (\[internal\] .+|exporting to .+)")
ENDED = re.compile(r"#(\d+) (?:DONE ([\d.]+)s|(CACHED)|(?:ERROR|CANCELED).*)$")
BUILDAH_STEP = re.compile(r"(?:\[(\d+)/\d+\] )?(?:STEP \d+/\d+: (.+)|COMMIT\b.*)")


@dataclass
class Step:
    """One step of a build; ``index`` counts from 1, which is the stage's FROM, and is 0 if it is not an instruction."""

    number: int
    stage: str
    index: int
    count: int
    text: str
    seconds: float = 0.0
    cached: bool = False
    ended: bool = False

    def __str__(self) -> str:
        where = f"{self.stage} {self.index}/{self.count}".strip()
        return f"[{where}] {self.text}" if self.index else self.text


class BuildLog:
    """The steps of docker's output by number; ``current`` is the last one that began."""

    def __init__(self) -> None:
        self.steps: dict[int, Step] = {}
        self.current: Step | None = None

    def feed(self, line: str) -> None:
        """Parse the next line; a line of another form is ignored."""
        if named := STEP.match(line):
            number, stage, index, count, text = named.groups()
            self._begin(Step(int(number), stage or "", int(index), int(count), text))
        elif internal := INTERNAL.match(line):
            self._begin(Step(int(internal[1]), "", 0, 0, internal[2]))
        elif (ended := ENDED.match(line)) and int(ended[1]) in self.steps:
            step = self.steps[int(ended[1])]
            step.ended, step.cached = True, bool(ended[3])
            step.seconds = float(ended[2] or 0)

    def of_stage(self, stage: str) -> list[Step]:
        """Return the instructions of a stage in order."""
        return sorted(
            (each for each in self.steps.values() if each.index and each.stage == stage), key=attrgetter("index")
        )

    def _begin(self, step: Step) -> None:
        self.current = self.steps.setdefault(step.number, step)


class BuildahLog(BuildLog):
    """The steps of buildah's output: ``STEP 2/9: RUN …``, after ``[1/2] `` if there are several stages.

    buildah also counts instructions that are not steps for BuildKit, and prints no times: a step ends when the next
    line of this form comes.
    """

    def __init__(self, dockerfile: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        instructions = parse(dockerfile)
        self._stages = list(dict.fromkeys(each.stage for each in instructions if each.stage))
        self._counts = {stage: len(steps(instructions, stage)) for stage in self._stages}
        self._clock, self._started_s = clock, clock()

    def feed(self, line: str) -> None:
        """Parse the next line."""
        if not (named := BUILDAH_STEP.match(line)):
            return
        self._end()
        place, text = named.groups()
        if text and text.split(" ", 1)[0] in STEPS:
            stage = self._stages[int(place or 1) - 1]
            index = len(self.of_stage(stage)) + 1
            self._begin(Step(len(self.steps) + 1, stage, index, self._counts[stage], text))

    def _end(self) -> None:
        now_s = self._clock()
        if self.current and not self.current.ended:
            self.current.ended, self.current.seconds = True, round(now_s - self._started_s, 1)
        self._started_s = now_s
