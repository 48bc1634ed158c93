"""Parser for `scontrol show job`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

# Slurm's base states that a job does not leave (man scontrol, JOB STATES).
ENDED = frozenset(
    ["BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"]
)


@dataclass(frozen=True)
class Job:
    """What ``scontrol show job`` says of one job."""

    id: int
    state: str
    code: int
    signal: int
    nodes: str
    output: str

    LINE: ClassVar[str] = "scontrol --oneliner show job"

    @property
    def ended(self) -> bool:
        """Whether the job has reached a state that it does not leave."""
        return self.state in ENDED

    @classmethod
    def parse(cls, line: str) -> Job:
        """Read one line of ``scontrol --oneliner show job``; a value ends where the next name begins."""
        fields = dict(re.findall(r"(?:^|\s)([A-Za-z/:_]+)=(.*?)(?=\s[A-Za-z/:_]+=|\s*$)", line))
        code, signal = (int(part) for part in fields["ExitCode"].split(":"))
        nodes = fields["NodeList"]
        return cls(
            id=int(fields["JobId"]),
            state=fields["JobState"],
            code=code,
            signal=signal,
            nodes="" if nodes == "(null)" else nodes,
            output=fields.get("StdOut", ""),
        )
