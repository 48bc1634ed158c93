"""Parses an engine's build output, line by line: steps, times, cache hits.

With ``--progress plain`` docker 20.10 and buildx write the same lines but for digests that only the first adds:
``#5 [stage-1 2/4] RUN …`` names a step, later lines with its number are its output and its end. buildah 1.28 writes
``STEP 2/9: RUN …``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from images.context.dockerfile import STEPS, parse, steps

NAMED = re.compile(r"#(\d+) \[(?:(\S.*?) +| *)(\d+)/(\d+)\] (.+)")  # the index is padded from 10 steps on
OTHER = re.compile(r"#(\d+) (\[internal\] .+|exporting to .+)")
ENDED = re.compile(r"#(\d+) (?:DONE ([\d.]+)s|(CACHED)|(ERROR|CANCELED).*)$")
BUILDAH = re.compile(r"(?:\[(\d+)/\d+\] )?(?:STEP \d+/\d+: (.+)|COMMIT\b.*)")
OUTPUT = re.compile(r"#(\d+) [\d.]+ (.*)")


@dataclass
class Step:
    """One step of a build; ``index`` counts from 1, which is its stage's FROM. What is no instruction has index 0."""

    number: int
    stage: str
    index: int
    count: int
    text: str
    seconds: float = 0.0
    cached: bool = False
    failed: bool = False
    ended: bool = False
    said: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        where = f"{self.stage} {self.index}/{self.count}".strip()
        return f"[{where}] {self.text}" if self.index else self.text


class BuildLog:
    """The steps by number, as far as they have been told of."""

    def __init__(self) -> None:
        self.steps: dict[int, Step] = {}
        self.under_way: Step | None = None

    def feed(self, line: str) -> None:
        """Take the next line; one that is of another form tells nothing of a step."""
        if named := NAMED.match(line):
            number, stage, index, count, text = named.groups()
            self._begin(Step(int(number), stage or "", int(index), int(count), text))
        elif other := OTHER.match(line):
            self._begin(Step(int(other[1]), "", 0, 0, other[2]))
        elif (ended := ENDED.match(line)) and int(ended[1]) in self.steps:
            step = self.steps[int(ended[1])]
            step.ended, step.cached, step.failed = True, bool(ended[3]), ended[4] == "ERROR"
            step.seconds = float(ended[2] or 0)
        elif (output := OUTPUT.match(line)) and int(output[1]) in self.steps:
            self.steps[int(output[1])].said.append(output[2])

    def of_stage(self, stage: str) -> list[Step]:
        """The instructions of a stage in their order."""
        return sorted((each for each in self.steps.values() if each.index and each.stage == stage), key=_index)

    def failed(self) -> list[Step]:
        """The steps that ended with an error."""
        return [step for step in self.steps.values() if step.failed]

    def _begin(self, step: Step) -> None:
        self.under_way = self.steps.setdefault(step.number, step)


class BuildahLog(BuildLog):
    """What buildah says, ``STEP 2/9: RUN …`` with ``[1/2] `` before it where there are several stages.

    It counts what is no step for BuildKit, and tells no times: a step has ended when the next line of this kind comes.
    """

    def __init__(self, dockerfile: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        instructions = parse(dockerfile)
        self._stages = list(dict.fromkeys(each.stage for each in instructions if each.stage))
        self._counts = {stage: len(steps(instructions, stage)) for stage in self._stages}
        self._clock, self._begun = clock, clock()

    def feed(self, line: str) -> None:
        """Take the next line."""
        if not (named := BUILDAH.match(line)):
            if self.under_way and not self.under_way.ended and not line.startswith("--> "):
                self.under_way.said.append(line)
            return
        self._end()
        place, text = named.groups()
        if text and text.split(" ", 1)[0] in STEPS:
            stage = self._stages[int(place or 1) - 1]
            index = len(self.of_stage(stage)) + 1
            self._begin(Step(len(self.steps) + 1, stage, index, self._counts[stage], text))

    def _end(self) -> None:
        now = self._clock()
        if self.under_way and not self.under_way.ended:
            self.under_way.ended, self.under_way.seconds = True, round(now - self._begun, 1)
        self._begun = now


def _index(step: Step) -> int:
    return step.index
