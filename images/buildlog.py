"""What BuildKit says with ``--progress plain``, read line by line: which steps ran, how long, and which were cached.

Docker 20.10 and buildx write the same lines but for digests that only the first adds: ``#5 [stage-1 2/4] RUN …`` names
a step, later lines with its number are its output and its end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NAMED = re.compile(r"#(\d+) \[(?:(\S.*?) +| *)(\d+)/(\d+)\] (.+)")  # the index is padded from 10 steps on
OTHER = re.compile(r"#(\d+) (\[internal\] .+|exporting to .+)")
ENDED = re.compile(r"#(\d+) (?:DONE ([\d.]+)s|(CACHED)|(ERROR|CANCELED).*)$")
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


def _index(step: Step) -> int:
    return step.index
